"""Fields of every probe: the least value of each is taken and one less is refused, layers that there are and others."""

from dataclasses import replace

import pytest
from interp.probes.heads.probe import Heads
from interp.probes.manifold.probe import Manifold
from interp.probes.measures.field_checks import TOO_FEW, check_fields

from interp.errors import UsageError
from interp.registry import entries, load_entry
from interp.running.choose_probes import choose_probes
from interp.settings import field_words
from interp.testing import Shape, synthetic_capture

LEAST = {
    "belief": {"n_permutations": 19, "n_bootstrap": 20},
    "causal": {"n_prompts": 4, "n_controls": 19, "n_bootstrap": 20, "n_sula": 0},
    "components": {"n_permutations": 24, "n_bootstrap": 20},
    "depth_use": {"copies": 1, "n_prompts": 2, "n_permutations": 19, "n_bootstrap": 20},
    "dynamics": {"n_permutations": 19, "n_bootstrap": 20},
    "heads": {
        "n_prompts": 2, "n_random": 2, "n_sets": 1, "n_donors": 1, "n_screened": 2, "n_sampled": 13, "n_draws": 1,
        "n_permutations": 19, "n_bootstrap": 20,
    },
    "manifold": {
        "n_permutations": 19, "n_null": 20, "n_bootstrap": 20, "per_quintile": 1, "n_dropped": 1, "n_splits": 2,
    },
    "orthogonality": {"n_tokens": 2, "n_null": 20, "n_bootstrap": 20},
    "sula": {"n_permutations": 19, "n_bootstrap": 20},
    "value_axis": {"n_permutations": 19},
    "workspace": {"rank": 1, "n_null": 19},
}  # fmt: skip
"""Of each field the least value."""

MOST = {"causal": {"n_sula": 250}}
LAYERS = ("belief", "dynamics", "manifold", "orthogonality", "sula", "value_axis")


def ends(fields: dict[str, dict[str, int]], step: int) -> list[tuple[str, str, int, int]]:
    return [(name, field, end, end + step) for name, of in fields.items() for field, end in of.items()]


@pytest.mark.parametrize(("name", "field", "taken", "refused"), [*ends(LEAST, -1), *ends(MOST, 1)])
def test_the_least_value_is_taken_and_one_less_refused_before_anything_is_read(name, field, taken, refused):
    probe = load_entry("probe", name)()
    replace(probe, **{field: taken}).refuse_fields(3)
    wrong = replace(probe, **{field: refused})
    with pytest.raises(UsageError, match=rf"{name}\.{field} = {refused}\b"):
        wrong.refuse_fields(None)
    base = synthetic_capture(wrong.needs, Shape(n_prompts=10))
    with pytest.raises(UsageError, match=rf"{name}\.{field} = {refused}\b"):
        wrong.analyse(base, {})
    if name in ("heads", "depth_use"):
        with pytest.raises(UsageError, match=rf"{name}\.{field} = {refused}\b"):
            list(wrong.conditions(base))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_count_from_either_end_and_no_other_is_taken(name):
    probe = load_entry("probe", name)()
    for layer in (0, 2, -1, -3):
        replace(probe, layer=layer).refuse_fields(3)
    wrong, found = ((4, -5), "depths 0 to 3") if name == "belief" else ((3, -4), "layers 0 to 2")
    for layer in wrong:
        with pytest.raises(UsageError, match=rf"{name}\.layer = {layer}: the model has {found}"):
            replace(probe, layer=layer).refuse_fields(3)


def test_the_first_field_below_its_least_value_is_named():
    least = {"n_permutations": 19, "n_null": 20, "n_bootstrap": 20}
    with pytest.raises(UsageError) as caught:
        check_fields(replace(Manifold(), n_null=3, n_bootstrap=2), least)
    assert (caught.value.asked, caught.value.found, caught.value.fix) == (
        "manifold.n_null = 3", TOO_FEW, "Choose 20 or more.",
    )  # fmt: skip
    check_fields(Manifold(n_null=20), {"n_null": 20})
    assert Heads().n_prompts is None
    check_fields(Heads(), {"n_prompts": 2})


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
    check_fields(probe, {})
    object.__setattr__(probe, field, value)  # types are checked while tests run, and not for users
    with pytest.raises(UsageError) as caught:
        check_fields(probe, {})
    assert (caught.value.asked, caught.value.fix) == (f"heads.{field} = {value!r}", fix)


WORDS = [(name, field) for name in entries("probe") for field, words in field_words(load_entry("probe", name)).items()
         if words and not {"true", "none"} & {*words} and field != "layers"]  # fmt: skip


@pytest.mark.parametrize(("name", "field"), WORDS)
def test_a_word_that_a_field_does_not_take_is_refused_before_anything_is_read(name, field):
    probe = load_entry("probe", name)()
    odd = ("odd",) if isinstance(getattr(probe, field), tuple) else "odd"
    object.__setattr__(probe, field, odd)  # types are checked while tests run, and not for users
    with pytest.raises(UsageError, match=rf"{name}\.{field} = .*odd"):
        choose_probes([probe])
