"""Fields that hold unknown words, or are too small for what is made of them, are refused in one form of words."""

from dataclasses import replace

import pytest
from interp.probes.heads.probe import Heads
from interp.probes.manifold.probe import Manifold
from interp.probes.measures.field_checks import refuse_too_few, refuse_unknown

from interp.errors import UsageError


def test_fields_below_their_least_value_are_named_in_words_of_their_own():
    probe = replace(Manifold(), n_null=3, n_bootstrap=2)
    with pytest.raises(UsageError) as caught:
        refuse_too_few(probe, {"n_permutations": 19, "n_null": 20, "n_bootstrap": 20}, "too few")
    assert (caught.value.asked, caught.value.found, caught.value.fix) == (
        "manifold.n_null = 3", "too few", "Choose 20 or more.",
    )  # fmt: skip
    refuse_too_few(Manifold(n_null=20), {"n_null": 20}, "too few")
    with pytest.raises(UsageError, match="that draws nothing"):
        refuse_too_few(
            Manifold(per_quintile=0), {"n_null": 20, "per_quintile": 1}, {"per_quintile": "that draws nothing"}
        )
    assert Heads().n_prompts is None
    refuse_too_few(Heads(), {"n_prompts": 2}, "too few")


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("how", ("zero", "noise"), "Choose among zero, mean, resample."),
        ("how", (), "Choose among zero, mean, resample."),
        ("measure", "harm", "Choose among auto, posterior_kl, entropy_error, next_kl, loss."),
    ],
)
def test_words_that_the_type_of_a_field_does_not_name_are_refused(field, value, fix):
    probe = Heads()
    refuse_unknown(probe)
    object.__setattr__(probe, field, value)  # types are checked while tests run, and not for users
    with pytest.raises(UsageError) as caught:
        refuse_unknown(probe)
    assert (caught.value.asked, caught.value.fix) == (f"heads.{field} = {value!r}", fix)
