"""Conversations as texts: messages through the tokenizer's chat template, up to where the reply would start."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interp.errors import PromptError
from interp.prompt import PromptSet
from interp.prompting.rows import MESSAGES, PromptRow, PromptTable, prompt_set

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROLE, TURN = "role", "turn"
"""Columns of a conversation: the role of the last message, and the number of messages."""


def is_message(value: object) -> bool:
    return isinstance(value, Mapping) and "role" in value and ("content" in value or "tool_calls" in value)


def prompts_of_table(table: PromptTable, tokenizer: "PreTrainedTokenizerBase | None") -> PromptSet:
    """The texts of a table, or its messages as the tokenizer writes them, with the columns `role` and `turn`.

    Raises `PromptError`, naming the place, for invalid messages and for a template that is missing or fails.
    """
    if not table.has_messages:
        return prompt_set(table)
    places = [f"{table.name}, {row.place}" for row in table.rows]
    for row, where in zip(table.rows, places, strict=True):
        if taken := sorted(row.values.keys() & {table.text_column, ROLE, TURN}):
            raise PromptError(
                asked=where,
                found=f"it has {MESSAGES} and the column {taken[0]!r}, which is made from the messages",
                fix="Rename that column, or leave it out.",
            )
    chats, texts = _written([row.values.get(MESSAGES) for row in table.rows], tokenizer, places)
    rows = []
    for row, text, chat in zip(table.rows, texts, chats, strict=True):
        others = {column: value for column, value in row.values.items() if column != MESSAGES}
        rows.append(PromptRow(row.place, {table.text_column: text, ROLE: chat[-1]["role"], TURN: len(chat), **others}))
    source = f"{table.source}, through the chat template"
    return replace(prompt_set(replace(table, rows=rows, source=source)), is_templated=True)


def as_chat(prompts: PromptSet, tokenizer: "PreTrainedTokenizerBase | None") -> PromptSet:
    """Every text as the only message of a user; sets of messages are returned unchanged.

    Raises `PromptError` for token ids, and for prompts with an exact posterior, which is that of the bare texts.
    """
    if prompts.is_templated:
        return prompts
    if not prompts.is_text or prompts.posterior is not None:
        raise PromptError(
            asked=f"the prompts {prompts.name!r} as messages of a chat",
            found="their exact posterior is that of the bare texts" if prompts.is_text else "they are token ids",
            fix="Leave out --chat (chat=True).",
        )
    chats = [[{"role": "user", "content": prompt.text}] for prompt in prompts]
    _, texts = _written(chats, tokenizer, [f"{prompts.name}, prompt {i + 1}" for i in range(len(prompts))])
    return replace(
        prompts,
        prompts=[replace(p, text=text) for p, text in zip(prompts, texts, strict=True)],
        is_templated=True,
        source=f"{prompts.source or prompts.name}; each the message of a user, through the chat template",
    )


def _checked(value: object, where: str) -> list[dict[str, Any]]:
    """The messages of one conversation with all their keys; the template decides which of them matter."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        found = f"{MESSAGES!r} is {value!r:.60}, not a list of messages"
    else:
        faults = ((i, _fault(message)) for i, message in enumerate(value))
        found = next((f"message {i + 1} {fault}" for i, fault in faults if fault), None)
    if found:
        fix = 'Write [{"role": "user", "content": "..."}, ...].'
        raise PromptError(asked=where, found=found, fix=fix)
    return list(map(dict, value))  # pyrefly: ignore[bad-argument-type]


def _fault(message: object) -> str | None:
    """Why a message cannot be used; None if it has a role and some content, both as text."""
    if not isinstance(message, Mapping) or not is_message(message):
        return f"is {message!r:.60}"
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts]
    if not isinstance(message["role"], str) or not all(isinstance(text, str) for text in texts):
        return "has a role or content that is not text"
    has_more = any(value for key, value in message.items() if key not in (ROLE, "content", "name"))
    if not has_more and not "".join(map(str, texts)).strip():
        return f"({message['role']}) is empty"
    try:
        json.dumps(message)
    except (TypeError, ValueError) as error:
        return f"has values that JSON cannot write ({error})"
    return None


def _written(
    values: Sequence[object], tokenizer: "PreTrainedTokenizerBase | None", places: Sequence[str]
) -> tuple[list[list[dict[str, Any]]], list[str]]:
    chats = [_checked(value, where) for value, where in zip(values, places, strict=True)]
    if tokenizer is None or not tokenizer.chat_template:
        raise PromptError(
            asked=f"{places[0]}, as a chat",
            found="the tokenizer has no chat template" if tokenizer else "there is no tokenizer to write messages with",
            fix="Use an instruction-tuned model, or give the texts as they should be read.",
        )
    template = _template(tokenizer, places[0])
    tokens = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return chats, [rendered(template, tokens, chat, place) for chat, place in zip(chats, places, strict=True)]


def _template(tokenizer: "PreTrainedTokenizerBase", place: str) -> str:
    """The tokenizer's only template, or the one named `default` of several."""
    known = tokenizer.chat_template
    if isinstance(known, dict) and "default" not in known:
        raise PromptError(
            asked=f"{place}, as a chat",
            found=f"the tokenizer has the chat templates {', '.join(known)}, and none is named default",
            fix=f"Choose one, `tokenizer.chat_template = tokenizer.chat_template[{next(iter(known))!r}]`, and load the "
            "model with `tokenizer=tokenizer`.",
        )
    return tokenizer.get_chat_template()


def rendered(template: str, tokens: Mapping[str, Any], chat: Sequence[dict[str, Any]], place: str) -> str:
    """A conversation as a template writes it, up to where the reply would start.

    A last message of the assistant is left open at its end. transformers compiles the template in Jinja's sandbox,
    without access to files, modules and private attributes. Raises `PromptError`, naming the place, if the template
    fails or leaves something out.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    def written(messages: Sequence[dict[str, Any]], *, reading: bool) -> str:
        return render_jinja_template(
            conversations=[[*messages]], chat_template=template, add_generation_prompt=reading and not is_reply,
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
                raise ValueError(f"it writes {key} of the last message behind its content, where reading ends")
        lists = (message["content"] for message in chat if isinstance(message.get("content"), list))
        if any(repr(part)[:-2] in text for parts in lists for part in parts):
            raise ValueError("it takes a content that is one text, and this one is a list of parts")
    except Exception as error:  # whatever the template's code raises
        found = " ".join(str(error).split())[:300] or type(error).__name__
        raise PromptError(
            asked=f"{place}, as a chat",
            found=f"the chat template refuses it: {found}",
            fix="See which roles, in which order, the template allows (`tokenizer.chat_template`), or give the texts "
            "as they should be read.",
        ) from error
    return text
