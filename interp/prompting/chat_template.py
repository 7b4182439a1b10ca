"""A chat template is code that came with somebody's tokenizer: it runs in a process of its own, and not for ever.

transformers compiles templates in Jinja's sandbox, which keeps them from files, modules and the insides of objects and
ends `range` at 100,000. Loops inside loops, macros that call themselves and a letter times a billion it lets run.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from interp.errors import InterpError, PromptError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CPU_SECONDS, BYTES, LONGEST = 20.0, 1 << 30, 1_000_000
"""What all conversations together may take of processor and memory, and how many characters one may become."""

_STALLED = 300.0
"""Seconds on the clock after which a process that was given no processor is given up."""

_RUN = "from interp.prompting.chat_template import render_here; render_here()"


def render_chats(
    tokenizer: "PreTrainedTokenizerBase", chats: Sequence[list[dict[str, Any]]], places: Sequence[str]
) -> list[str]:
    """The conversations as the tokenizer's template writes them, up to where the reply would start.

    One that ends with the assistant is left open at the end of what it has said so far. Raises `PromptError`, naming
    the place, where the template fails or takes more than `CPU_SECONDS`, `BYTES` or `LONGEST`.
    """
    asked = {
        "template": _template(tokenizer, places[0]),
        "tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "chats": chats,
    }
    with tempfile.TemporaryDirectory() as folder:
        given, said = Path(folder, "asked.json"), Path(folder, "said.jsonl")
        given.write_text(json.dumps(asked), encoding="utf-8")
        ended = _run(given, said)
        answers = [json.loads(line) for line in said.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    texts = [str(answer["text"]) for answer in answers if "text" in answer]
    if len(texts) < len(chats):
        refused = next((answer["refused"] for answer in answers if "refused" in answer), None)
        raise _refusal(places[len(texts)], str(ended or refused or "it ended the process that it ran in"))
    return texts


def _template(tokenizer: "PreTrainedTokenizerBase", place: str) -> str:
    """The tokenizer's only template, or the one of several that it calls `default`."""
    known = tokenizer.chat_template
    if isinstance(known, dict) and "default" not in known:
        raise PromptError(
            asked=f"{place}, as a chat",
            found=f"the tokenizer has the chat templates {', '.join(known)}, and none is named default",
            fix=f"Choose one, `tokenizer.chat_template = tokenizer.chat_template[{next(iter(known))!r}]`, and load the "
            "model with `tokenizer=tokenizer`.",
        )
    return tokenizer.get_chat_template()


def _refusal(place: str, found: str) -> InterpError:
    return PromptError(
        asked=f"{place}, as a chat",
        found=f"the chat template refuses it: {found}",
        fix="See which roles, in which order, the template allows (`tokenizer.chat_template`), or give the texts as "
        "they should be read.",
    )


def _run(given: Path, said: Path) -> str | None:
    """Let another process write what the template makes of `given`; in words why it was ended, if it was."""
    paths = os.pathsep.join(path for path in sys.path if path)
    with given.open("rb") as asked, said.open("wb") as answers:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _RUN], stdin=asked, stdout=answers, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        try:
            return _watch(child)
        finally:
            child.kill()
            child.wait()


def _watch(child: "subprocess.Popen[bytes]") -> str | None:
    since = time.monotonic()
    try:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            used = process.cpu_times()
            if process.memory_info().rss > BYTES:
                return f"it takes more than {BYTES >> 20} MB of memory"
            if used.user + used.system > CPU_SECONDS or time.monotonic() - since > _STALLED:
                return f"it takes longer than {CPU_SECONDS:g} s"
            time.sleep(0.02)
    except psutil.NoSuchProcess:
        pass  # it has ended since it was asked
    return None


def render_here() -> None:
    """The other process: one line for each conversation, until one is refused."""
    asked: dict[str, Any] = json.load(sys.stdin)
    for chat in asked["chats"]:
        found = rendered(asked["template"], asked["tokens"], chat)
        print(json.dumps(found), flush=True)
        if "refused" in found:
            return


def rendered(template: str, tokens: dict[str, Any], chat: list[dict[str, Any]]) -> dict[str, str]:
    """The `text` that a template makes of one conversation, or why it is `refused`; unbounded in time."""
    from transformers.utils.chat_template_utils import render_jinja_template

    def written(messages: list[dict[str, Any]], *, reading: bool) -> str:
        return render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=reading and not is_reply,
            continue_final_message=reading and is_reply, **tokens,
        )[0][0]  # fmt: skip

    *before, last = chat
    is_reply = last["role"] == "assistant"
    try:
        text = written(chat, reading=True)
        for key in sorted(last.keys() - {"role", "content"}) if is_reply else ():
            without = [*before, {name: value for name, value in last.items() if name != key}]
            is_read = written(without, reading=True) != text
            if not is_read and written(without, reading=False) != written(chat, reading=False):
                return {"refused": f"it writes {key} of the last message behind its content, where reading ends"}
    except Exception as error:  # whatever the template's code raises, told to the process that asked
        return {"refused": " ".join(str(error).split())[:300] or type(error).__name__}
    lists = (message["content"] for message in chat if isinstance(message.get("content"), list))
    if any(repr(part)[:-2] in text for parts in lists for part in parts):
        return {"refused": "it takes a content that is one text, and this one is a list of parts"}
    return {"text": text} if len(text) <= LONGEST else {"refused": f"it writes {len(text):,} characters"}
