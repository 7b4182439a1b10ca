"""A chat template reaches for nothing that is not its own; what it forbids, or cannot do, is said with the place."""

import pytest

from interp.errors import PromptError
from tests.interp.prompting.test_chat import ANSWERED, ASKED, TEMPLATE, chatty, said
from tests.named_prompts import resolve_prompts


def refused(template, chats=(ASKED,)):
    with pytest.raises(PromptError, match="as a chat: the chat template refuses it") as error:
        resolve_prompts(list(chats), tokenizer=chatty(template))
    return str(error.value)


def test_texts_are_those_of_transformers():
    template = TEMPLATE + "{{ messages | tojson }}{{ eos_token }}{% generation %}x{% endgeneration %}"
    for given, how in ((TEMPLATE, {}), (template, {})):
        tokenizer = chatty(given)
        chats = [ASKED, ANSWERED, said(("user", "<script>é</script> {{ 7 * 7 }}"))]
        expected = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True, **how) for c in chats]
        assert [p.text for p in resolve_prompts(chats, tokenizer=tokenizer)] == expected


FORBIDDEN = {
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


@pytest.mark.parametrize("template", FORBIDDEN, ids=lambda value: value[:24])
def test_what_the_sandbox_forbids_is_said(template):
    assert FORBIDDEN[template] in refused(template)


def test_the_row_that_the_template_refuses_is_named():
    chats = [ASKED, ANSWERED, said(("tool", "a")), ASKED]
    assert "conversation 3" in refused(TEMPLATE, chats) or "text 3" in refused(TEMPLATE, chats)
