"""The scoreboard: its table is what its scores give, scoring knows right from wrong, methods answer on a program."""

import itertools

import numpy as np
import pytest

from benchmarks import mechanisms
from benchmarks.mechanism_methods.case import Case, class_means, first_above_half, orthonormal
from interp.loading.sources import shipped_programs

INSTALLED = [name for name in mechanisms.METHODS if name not in ("CAE", "chance")]


@pytest.fixture(scope="module")
def case():
    return Case.of("chain", mechanisms.noise_of("chain", "rotated, distractors, noise", 3), 40)


def test_every_program_is_scored_and_the_readme_has_the_table():
    text = mechanisms.README.read_text(encoding="utf-8")
    assert mechanisms.table(mechanisms.read_scores()) in text
    found = [(s["seed"], s["program"], s["method"], s["condition"]) for s in mechanisms.read_scores()]
    every = itertools.product((1, 2), shipped_programs(), mechanisms.METHODS, mechanisms.CONDITIONS)
    assert sorted(found) == sorted(every)


def test_a_share_is_over_what_was_asked_and_a_question_without_answer_is_a_dash():
    def line(program, method, **scores):
        return {"program": program, "method": method, "condition": "as compiled", "seed": 1, "answers": 1.0,
                "scores": scores}  # fmt: skip

    scores = [line("a", "interp", heads=[3, 4, 1.0]), line("b", "interp", heads=[1, 4, 2.0]),
              line("a", "nnsight", heads=[4, 4, 0.1], inert=[1, 2, 0.1])]  # fmt: skip
    ours, other = ([cell.strip() for cell in row.split("|")[1:-1]] for row in mechanisms.table(scores).splitlines()[2:])
    assert ours == ["as compiled (2)", "interp", "0.50 [0.25, 0.75]", "-", "-", "-", "-", "1.5"]
    assert other == ["as compiled (2)", "nnsight", "1.00 [1.00, 1.00]", "-", "-", "0.50 [0.50, 0.50]", "-", "0.1"]


def test_directions_of_the_card_are_scored_right_and_inert_or_random_ones_wrong(case):
    mechanism = case.model.mechanism
    for name in case.variables:
        depth = mechanism.first_depth(name)
        assert case.interchange_accuracy(orthonormal(mechanism.directions[name].astype(float)), name, depth) == 1
        random = np.random.default_rng(0).standard_normal((3, case.model.info.d_model))
        assert case.interchange_accuracy(orthonormal(random), name, depth) < 0.5
    places = mechanisms.labelled_directions(case, np.random.default_rng(0))
    labels, mechanism = case.model.mechanism.card["labels"], case.model.mechanism
    for label, depth in places["inert"]:
        name = labels[label].split(":")[0]
        assert name == "unread" or not mechanism.is_read(name, depth)
    for label, depth in places["active"]:
        assert mechanism.is_read(labels[label].split(":")[0], depth)
    assert places["inert"] and places["active"]


def test_nobody_is_the_own_donor_and_the_same_seed_gives_the_same_case(case):
    assert (case.donors != np.arange(40)).all() and sorted(case.donors) == list(range(40))
    again = Case.of("chain", case.noise, 40)
    np.testing.assert_array_equal(again.sequences.tokens, case.sequences.tokens)
    np.testing.assert_array_equal(case.prompts.prompts[5].token_ids, case.sequences.tokens[5])


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTALLED)
def test_a_method_finds_the_heads_and_the_depth_of_a_variable_of_a_plain_program(name):
    plain = Case.of("shift_by_one", mechanisms.noise_of("shift_by_one", "as compiled", 2), 40)
    found = {q: (right, n) for q, right, n, _ in mechanisms.scores_of(plain, mechanisms._method(name), True)}
    assert found["heads"][0] == found["heads"][1]
    if name != "TransformerLens":
        assert found["directions"][0] > 0.9 * found["directions"][1]
    assert found["active"][0] >= 1


def test_abstraction_error_is_least_along_the_true_directions():
    pytest.importorskip("causal_abstraction", reason="causal-abstraction-eval is in the extra `bench`")
    from benchmarks.mechanism_methods.by_abstraction_error import _error

    plain = Case.of("shift_by_one", mechanisms.noise_of("shift_by_one", "as compiled", 2), 40)
    (name,) = plain.variables
    depth = plain.model.mechanism.first_depth(name)
    true = orthonormal(plain.model.mechanism.directions[name].astype(float))
    assert _error(plain, name, depth, true) == 0
    assert _error(plain, name, depth, orthonormal(np.random.default_rng(0).standard_normal(true.shape))) > 0.2


def test_helpers():
    points = np.array([[1.0, 0], [3, 0], [0, 2], [0, 4]])
    np.testing.assert_allclose(class_means(points, np.array(["a", "a", "b", "b"])), [[1, -1.5], [-1, 1.5]])
    assert len(orthonormal(np.array([[1.0, 0, 0], [2, 0, 0], [0, 1, 0]]))) == 2
    assert first_above_half([0.1, 0.2, 0.5, 0.4]) == 2 and first_above_half([np.nan, 1, 0]) == 1
