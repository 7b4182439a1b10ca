"""Conversations through a tokenizer's chat template: what is read, where it ends, and what is refused."""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from interp.errors import PromptError
from interp.prompt import Prompt, PromptSet
from tests.named_prompts import resolve_prompts
from tests.tokenised import of_words, tokenise

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    " <{{ m['role'] }}> {{ m['content'] }} </s>{% endfor %}{% if add_generation_prompt %} <assistant>{% endif %}"
)
WORDS = ("<s>", "</s>", "<unk>", "<user>", "<assistant>", "<system>", "a", "b", "c")


def chatty(template=TEMPLATE):
    return of_words(*WORDS, bos_token="<s>", eos_token="</s>", chat_template=template)


def said(*turns):
    return [{"role": role, "content": content} for role, content in turns]


ASKED = said(("system", "c"), ("user", "a b"))
ANSWERED = said(("user", "a"), ("assistant", "b"), ("user", "c a"))


def words_read(prompts, tokenizer):
    tokens = tokenise(prompts, tokenizer, window=None, max_positions=None)
    return [" ".join(tokenizer.convert_ids_to_tokens(ids.tolist())) for ids in tokens.ids], tokens


def test_a_conversation_is_read_up_to_where_the_reply_would_start_or_to_its_last_word():
    tokenizer = chatty()
    prompts = resolve_prompts([ASKED, ANSWERED, said(("user", "a"), ("assistant", "b c"))], tokenizer=tokenizer)
    read, tokens = words_read(prompts, tokenizer)
    assert read == [
        "<s> <system> c </s> <user> a b </s> <assistant>",
        "<s> <user> a </s> <assistant> b </s> <user> c a </s> <assistant>",
        "<s> <user> a </s> <assistant> b c",
    ]
    assert tokens.has_bos  # the template's own, once
    assert [tuple(p.columns.values()) for p in prompts] == [("user", 2), ("user", 3), ("assistant", 2)]


@pytest.mark.parametrize("way", ["jsonl", "parquet", "data set"])
def test_files_of_messages_give_the_template_what_each_message_has_and_keep_other_columns(tmp_path, way):
    datasets = pytest.importorskip("datasets")
    chats = [[ASKS, CALLS | {"content": None}, TOLD], [TOLD, {"role": "user", "content": "a"}]]
    rows = [{"messages": chat, "topic": "xy"[i], "correct": i > 0} for i, chat in enumerate(chats)]
    given = datasets.Dataset.from_list(rows)
    if way == "jsonl":
        given = tmp_path / "chats.jsonl"
        given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif way == "parquet":
        given = tmp_path / "chats.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), given)
    found = resolve_prompts(given, tokenizer=chatty(EVERY_KEY))
    assert found.prompts == resolve_prompts(rows, tokenizer=chatty(EVERY_KEY)).prompts
    assert [p.columns["topic"] for p in found] == ["x", "y"]
    assert found.units == {"role": "label", "turn": "1", "topic": "label", "correct": "label"}


def test_texts_are_messages_where_templates_allow():
    tokenizer = chatty()
    prompts = resolve_prompts(["a b", "c"], tokenizer=tokenizer, chat=True)
    assert words_read(prompts, tokenizer)[0] == ["<s> <user> a b </s> <assistant>", "<s> <user> c </s> <assistant>"]
    asked = resolve_prompts([ASKED, ANSWERED], tokenizer=tokenizer)
    assert resolve_prompts([ASKED, ANSWERED], tokenizer=tokenizer, chat=True) == asked
    with pytest.raises(PromptError, match="they are token ids"):
        resolve_prompts(PromptSet("ids", [Prompt(token_ids=(1, 2))]), tokenizer=chatty(), chat=True)
    with pytest.raises(PromptError, match="exact posterior is that of the bare texts"):
        known = PromptSet("known", [Prompt(text="a")], posterior=np.array([[0.5, 0.5]]), outcome_ids=np.array([6, 7]))
        resolve_prompts(known, tokenizer=chatty(), chat=True)
    assert (
        resolve_prompts([ASKED], tokenizer=chatty({"default": TEMPLATE, "rag": "b"})).prompts
        == resolve_prompts([ASKED], tokenizer=chatty()).prompts
    )


@pytest.mark.parametrize(
    "tokenizer, found",
    [(None, "no tokenizer"), (chatty(None), "no chat template"), (chatty("{% for %}"), "the chat template refuses it")],
)
def test_a_missing_or_broken_template_is_said(tokenizer, found):
    for given, chat in (([ASKED], False), (["a", "b"], True)):
        with pytest.raises(PromptError, match=found):
            resolve_prompts(given, tokenizer=tokenizer, chat=chat)


EVERY_KEY = (
    "{% for m in messages %}<{{ m.role }}>{% if m.name is defined %}({{ m.name }}){% endif %}"
    "{% for key in ('reasoning_content', 'mood') if m[key] is defined %}[{{ key }} {{ m[key] }}]{% endfor %}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}"
    "{% endif %}{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}{{ eos_token }}{% generation %}x{% endgeneration %}{% endif %}"
)
ASKS = {"role": "user", "content": "a", "name": "ann"}
CALLS = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"city": "<é>", "days": [1, 2]}}}]}
TOLD = {"role": "tool", "content": "18 C", "name": "f"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}


@pytest.mark.parametrize(
    "chat",
    [
        [ASKS],
        [ASKS, CALLS | {"content": None}, TOLD],
        [ASKS, CALLS, TOLD],
        [ASKS, CALLS | {"content": "", "reasoning_content": "b"}, TOLD],
        [ASKS | {"mood": {"is": ["good", 3, None]}}],
        [ASKS, {"role": "assistant", "content": "c a", "reasoning_content": "b"}],
        [PARTS],
        [ASKS, {**PARTS, "role": "assistant", "mood": 1.5}],
        [{"role": "user", "content": "<script>é</script> {{ 7 * 7 }}"}],
    ],
)
def test_every_key_of_a_message_reaches_the_template(chat):
    tokenizer, is_reply = chatty(EVERY_KEY), chat[-1]["role"] == "assistant"
    how = {"continue_final_message" if is_reply else "add_generation_prompt": True}
    expected = tokenizer.apply_chat_template(chat, tokenize=False, **how)
    assert resolve_prompts([chat, [ASKS, TOLD]], tokenizer=tokenizer).prompts[0].text == expected


@pytest.mark.parametrize(
    "chat, template, found",
    [
        ([], TEMPLATE, "not a list of messages"),
        ("hello", TEMPLATE, "not a list of messages"),
        ([{"role": "user"}], TEMPLATE, "message 1 is"),
        (said(("user", "a"), ("assistant", "  ")), TEMPLATE, r"message 2 \(assistant\) is empty"),
        ([{"role": "user", "content": 3}], TEMPLATE, "not text"),
        (said(("tool", "a")), TEMPLATE, "(text|row) 2.*\n?.*no tools here"),
        ([ASKS, CALLS | {"content": "b"}], EVERY_KEY, "it writes tool_calls of the last message behind its content"),
        ([ASKS, {**PARTS, "role": "assistant"}], TEMPLATE, "a list of parts"),
        ([PARTS], TEMPLATE, "a list of parts"),
        ([{"role": "user", "content": [{"type": "image", "url": "x"}]}], EVERY_KEY, "not text"),
        ([{"role": "user", "content": []}], EVERY_KEY, r"message 1 \(user\) is empty"),
        ([{"role": "user", "content": None, "name": "ann"}], EVERY_KEY, r"message 1 \(user\) is empty"),
        ([ASKS | {"mood": {1, 2}}], EVERY_KEY, "message 1 has values that JSON cannot write"),
        ([ASKS], {"rag": TEMPLATE, "tool_use": TEMPLATE}, "chat templates rag, tool_use, and none is named default"),
    ],
)
def test_what_is_no_conversation_or_would_be_lost_on_the_way_to_the_template_is_refused(chat, template, found):
    with pytest.raises(PromptError, match=found):
        resolve_prompts([{"messages": [ASKS]}, {"messages": chat}], tokenizer=chatty(template))
    for given, told in (([{"messages": ASKED, "role": "x"}], "the column 'role'"), ([[ASKS], {"text": "a"}], "text 2")):
        with pytest.raises(PromptError, match=told):
            resolve_prompts(given, tokenizer=chatty())


FORBIDDEN = {
    "{% for i in range(10**9) %}x{% endfor %}": "range",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}": "recursion",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": "unsafe",
    "{{ 'a' * 10**15 }}": "MemoryError",
    "{% include '/etc/passwd' %}": "no loader",
    "{{ " + "(" * 20_000 + ")" * 20_000 + " }}": "",
}


@pytest.mark.parametrize("template", FORBIDDEN, ids=lambda value: value[:24])
def test_what_the_sandbox_forbids_is_said(template):
    with pytest.raises(PromptError, match="as a chat: the chat template refuses it") as error:
        resolve_prompts([ASKED], tokenizer=chatty(template))
    assert FORBIDDEN[template] in str(error.value)
