"""A chat template that runs for ever, fills the memory or reaches for what is not its own is rejected soon."""

import time

import psutil
import pytest

from interp.errors import PromptError
from interp.prompting import chat_template
from interp.prompting.files import resolve_prompts
from tests.interp.prompting.test_chat import ANSWERED, ASKED, TEMPLATE, chatty, said
from tests.quick import quick

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}"
LARGE = "{% set ns = namespace(x='a' * 1000000) %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"


def refused(template, chats=(ASKED,)):
    with pytest.raises(PromptError, match="as a chat: the chat template refuses it") as error:
        resolve_prompts(list(chats), tokenizer=chatty(template))
    return str(error.value)


@pytest.fixture
def impatient(monkeypatch):
    """A limit that is reached soon, above the 1.5 s of starting."""
    monkeypatch.setattr(chat_template, "CPU_SECONDS", 4.0)


def test_texts_are_those_of_transformers():
    template = TEMPLATE + "{{ messages | tojson }}{{ eos_token }}{% generation %}x{% endgeneration %}"
    for given, how in ((TEMPLATE, {}), (template, {})):
        tokenizer = chatty(given)
        chats = [ASKED, ANSWERED, said(("user", "<script>é</script> {{ 7 * 7 }}"))]
        expected = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True, **how) for c in chats]
        assert [p.text for p in resolve_prompts(chats, tokenizer=tokenizer)] == expected


@pytest.mark.slow
def test_loops_inside_loops_are_ended(impatient):
    since = time.monotonic()
    assert "it takes longer than 4 s" in refused(ENDLESS)
    assert time.monotonic() - since < 60
    assert not [c for c in psutil.Process().children() if "render_here" in " ".join(c.cmdline())]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(chat_template, "BYTES", 400 << 20)
    assert "it takes more than 400 MB of memory" in refused(LARGE)


FORBIDDEN = {
    "{{ 'a' * 2000000 }}": "it writes 2,000,000 characters",
    "{% for i in range(10**9) %}x{% endfor %}": "range",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}": "recursion",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": "unsafe",
    "{{ messages.append(1) }}": "unsafe",
    "{{ raise_exception.__globals__.os }}": "unsafe",
    "{{ 'a' * 10**15 }}": "MemoryError",
    "{% include '/etc/passwd' %}": "no loader",
    "{{ 1 / 0 }}": "division",
    "{% for %}": "Expected",
    "{{ " + "(" * 20_000 + ")" * 20_000 + " }}": "",
}


@pytest.mark.parametrize(
    "template",
    quick([each for each in FORBIDDEN if "macro" in each or "__class__" in each], FORBIDDEN),
    ids=lambda value: value[:24],
)
def test_what_the_sandbox_or_the_size_forbids_is_said(template):
    assert FORBIDDEN[template] in refused(template)


def test_the_row_that_the_template_refuses_is_named():
    chats = [ASKED, ANSWERED, said(("tool", "a")), ASKED]
    assert "conversation 3" in refused(TEMPLATE, chats) or "text 3" in refused(TEMPLATE, chats)
