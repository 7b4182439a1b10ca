"""How many prompts a draw marks at most."""

import pytest

from interp.prompt import Prompt, PromptSet
from interp.prompting.pools import most_drawn

TEXTS = PromptSet("texts", [Prompt(text=f"text {i}") for i in range(100)])
SEQUENCES = PromptSet("tunnel", [Prompt(token_ids=(1, 2), scored=(0,)) for _ in range(100)], unit="sequence")


@pytest.mark.parametrize(
    ("prompts", "per_quintile", "n"),
    [(TEXTS, 8, 40), (TEXTS, 20, 100), (TEXTS, 30, 100), (TEXTS, None, 100), (SEQUENCES, 8, 100)],
)
def test_texts_alone_are_drawn_by_quintile(prompts, per_quintile, n):
    assert most_drawn(prompts, per_quintile) == n
