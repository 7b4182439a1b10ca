"""Cards, the shipped checkpoints that have to meet them, and rebuilding."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from interp.wind_tunnels.evaluation.checkpoint import SEEN, evaluate_model, read_curve, save
from interp.wind_tunnels.networks.networks import Network
from interp.wind_tunnels.networks.weights import WEIGHTS_NAME, load_weights, weights_fingerprint
from interp.wind_tunnels.plans.rebuild import Rebuild, rebuild
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import Recipe, train
from interp.wind_tunnels.training.plan import TrainingPlan
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from interp.errors import ModelError, UsageError
from interp.loading.load import load
from interp.loading.sources import kept_steps, locate, shipped_tunnels
from interp.records.tunnel_card import CARD_FORMAT, CARD_NAME, Figure, TunnelCard, read_card, tunnel_name, write_card
from interp.registry import load_entry
from interp.tunnel import make_task
from tests.quick import quick

SHIPPED = sorted(shipped_tunnels().values())
CHEAP = ("recall-gpt-neox", "mess3-gpt-neox")
"""Trained again in half a minute; the others take 45 minutes."""
QUICK = ("mess3-gpt-neox",)
TASK = Bijection(V=4, L=5)
NETWORK = Network(n_layers=1, n_heads=2, d_model=16)
RECIPE = Recipe(n_steps=5, batch=8, n_copies=4, n_warmup=2)
PLAN = TrainingPlan(TASK, NETWORK, RECIPE, limits={"kl_bits": 5.0})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A finished training, too short to be any good."""
    folder = tmp_path_factory.mktemp("tunnel")
    save(train(PLAN), PLAN, folder)
    return folder


@pytest.mark.parametrize("shipped", quick([p for p in SHIPPED if p.name in QUICK], SHIPPED), ids=lambda path: path.name)
def test_shipped_checkpoint_meets_its_card_on_fresh_sequences(shipped):
    card = read_card(shipped)
    task = make_task(load_entry("tunnel", card.task), card.parameters)
    model = AutoModelForCausalLM.from_pretrained(shipped)  # plainly, as anybody would
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    horizon = card.recipe.get("horizon")
    found = evaluate_model(model.eval(), task, n=2500, seed=card.eval_seed + 1, horizon=horizon)
    for name, figure in card.figures.items():
        assert figure.is_met
        if name == SEEN:  # of the training, not of these sequences
            continue
        assert figure.limit is None or found.figures[name].value <= figure.limit
        again = found.figures[name]
        noise = ((again.high - again.low) + (figure.high - figure.low)) / 2  # of two samples, one of them heavy-tailed
        assert again.value == pytest.approx(figure.value, rel=0.25, abs=max(noise, 1e-4)), name
    assert sum(p.stat().st_size for p in shipped.iterdir() if p.is_file()) < 1.7e6  # all: 14 MB
    assert model.num_parameters() == card.n_parameters
    assert shipped.name == card.name


@pytest.mark.parametrize(
    "shipped",
    [pytest.param(p, marks=pytest.mark.slow if p.name in CHEAP else pytest.mark.stress) for p in SHIPPED],
    ids=lambda path: path.name,
)
def test_shipped_checkpoint_is_rebuilt_from_its_card(shipped, tmp_path):
    assert rebuild(shipped, load_entry("tunnel", read_card(shipped).task), tmp_path).failures == []


def test_a_checkpoint_rebuilds_with_its_figures_and_its_curve(folder, tmp_path):
    card = read_card(folder)
    found = evaluate_model(
        load_weights(folder), make_task(Bijection, card.parameters), n=card.n_eval, seed=card.eval_seed
    )
    assert found.figures["kl_bits"].value == pytest.approx(card.figures["kl_bits"].value, abs=1e-12)
    result = rebuild(folder, Bijection, tmp_path / "again")
    assert result.is_identical
    assert result.failures == []
    assert result.rebuilt.figures == result.shipped.figures
    curve = read_curve(folder)
    assert [point[0] for point in curve] == [1, 2, 3, 4, 5]
    assert [point[2] for point in curve] == pytest.approx([p[2] for p in train(PLAN).curve], rel=1e-5)


@pytest.mark.slow
def test_weights_kept_in_half_the_bits_are_those_that_were_measured(tmp_path):
    plan = dataclasses.replace(PLAN, recipe=dataclasses.replace(RECIPE, stored="float16", horizon=2))
    card = save(train(plan), plan, tmp_path)
    weights = load_file(tmp_path / WEIGHTS_NAME)
    assert {w.dtype for w in weights.values()} == {torch.float16}
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    found = evaluate_model(model, TASK, n=card.n_eval, seed=card.eval_seed, horizon=2)
    assert found.figures["kl_bits"].value == pytest.approx(card.figures["kl_bits"].value, abs=1e-12)
    within, beyond = (card.figures[f"{side}.kl_bits"].value for side in ("within_horizon", "beyond_horizon"))
    assert (2 * within + 3 * beyond) / 5 == pytest.approx(card.figures["kl_bits"].value, abs=1e-12)
    assert rebuild(tmp_path, Bijection, tmp_path / "again").is_identical


def test_rebuild_that_comes_out_otherwise_is_reported(folder):
    card = read_card(folder)

    def with_kl(value: float, limit: float | None = 5.0) -> TunnelCard:
        figure = dataclasses.replace(card.figures["kl_bits"], value=value, low=value, high=value, limit=limit)
        return dataclasses.replace(card, figures={**card.figures, "kl_bits": figure})

    assert Rebuild(with_kl(1.0), with_kl(1.9), is_identical=False).failures == []
    assert "more than a factor 2 apart" in Rebuild(with_kl(1.0), with_kl(2.1), is_identical=False).failures[0]
    assert "more than a factor 2 apart" in Rebuild(with_kl(1.0), with_kl(0.4), is_identical=False).failures[0]
    assert "its limit 1.5" in Rebuild(with_kl(1.0, 1.5), with_kl(1.6), is_identical=False).failures[0]
    assert Rebuild(with_kl(1.0, None), with_kl(9.0), is_identical=False).failures == []
    assert Rebuild(with_kl(-1.0), with_kl(-1.9), is_identical=False).failures == []  # as a skill may be
    assert "more than a factor 2 apart" in Rebuild(with_kl(-1.0), with_kl(-2.1), is_identical=False).failures[0]


@pytest.mark.parametrize("shipped", quick([p for p in SHIPPED if p.name in QUICK], SHIPPED), ids=lambda path: path.name)
def test_weights_of_a_shipped_tunnel_have_the_one_fingerprint_that_a_loaded_model_has(shipped):
    assert weights_fingerprint(shipped) == load(shipped, check=False).fingerprint
    assert read_card(shipped).init is None, "no shipped card names other weights"


@pytest.mark.parametrize("variant", ["a@3", "a/b", "-a", "a-", "a b", "a:b"])
def test_variant_that_cannot_be_part_of_a_name_is_refused(variant):
    assert tunnel_name("bijection", "mistral", "a.b_2") == "bijection-mistral-a.b_2"
    with pytest.raises(UsageError, match="it cannot be part of a model name and a folder name"):
        tunnel_name("bijection", "mistral", variant)


@pytest.fixture
def two_tasks(folder, tmp_path, monkeypatch) -> Path:
    """A home of checkpoints with a bijection, and beside it one whose name only begins like another task's."""
    shutil.copytree(folder, tmp_path / "bijection-gpt-neox")
    other = shutil.copytree(folder, tmp_path / "bijection-fixed-gpt-neox")
    content = json.loads((other / CARD_NAME).read_text())
    (other / CARD_NAME).write_text(json.dumps({**content, "task": "bijection-fixed"}))
    monkeypatch.setattr(Bijection, "checkpoints", tmp_path)
    return tmp_path


def test_tunnel_belongs_to_the_task_of_its_card_not_to_one_of_a_like_name(two_tasks):
    found = shipped_tunnels()
    assert found["bijection-gpt-neox"] == two_tasks / "bijection-gpt-neox"
    assert "bijection-fixed-gpt-neox" not in found


def test_step_of_a_tunnel_is_loaded_with_its_own_weights_and_none_of_the_final_figures(two_tasks, tmp_path):
    home = two_tasks / "bijection-gpt-neox"
    steps = {step: train(dataclasses.replace(PLAN, keep=(0, 3)), folder=tmp_path / "again") for step in (0, 3)}
    shutil.copytree(tmp_path / "again" / "steps", home / "steps")
    assert [*kept_steps(home)] == [*steps] == [0, 3]
    for name in ("tunnel:bijection-gpt-neox@3", str(home / "steps" / "3")):
        model = load(name)
        expected = load_weights(home / "steps" / "3").state_dict()
        assert all(torch.equal(p, expected[key]) for key, p in model.module.state_dict().items())
        assert model.card is not None and model.task == TASK
        assert (model.card["step"], model.card["figures"]) == (3, {})
    assert locate("tunnel:bijection-gpt-neox").card["figures"] != {}
    last = load_weights(home).state_dict()
    assert not all(torch.equal(last[key], p) for key, p in load_weights(home / "steps" / "3").state_dict().items())


def test_missing_cards_and_weights_are_told(tmp_path, folder):
    with pytest.raises(ModelError) as refusal:
        read_card(tmp_path)
    assert f"the tunnel in {tmp_path}: there is no tunnel.json" in str(refusal.value)
    shutil.copy(folder / CARD_NAME, tmp_path)
    with pytest.raises(ModelError) as refusal:
        load_weights(tmp_path)
    assert "there is no model.safetensors" in str(refusal.value)


def changed(folder: Path, into: Path, **changes) -> Path:
    content = json.loads((folder / CARD_NAME).read_text())
    (into / CARD_NAME).write_text(json.dumps({**content, **changes}))
    return into


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": CARD_FORMAT + 1}, f"it has format {CARD_FORMAT + 1}, this version reads up to {CARD_FORMAT}"),
        ({"format": "one"}, "its format is 'one'"),
        ({"seed": True}, "seed: input should be a valid integer"),
        ({"colour": "blue"}, "colour: unexpected keyword argument"),
        (
            {"figures": {"kl_bits": {"value": "low", "unit": "bits", "low": 0, "high": 1, "limit": None}}},
            "figures.kl_bits.value: input should be a valid number",
        ),
        ({"tolerance": float("inf")}, "tolerance: input should be a finite number"),
    ],
)
def test_broken_card_is_told(folder, tmp_path, changes, words):
    with pytest.raises(ModelError) as refusal:
        read_card(changed(folder, tmp_path, **changes))
    assert words in str(refusal.value)


def test_figures_that_are_not_finite_are_refused(folder, tmp_path):
    broken = dataclasses.replace(read_card(folder), figures={"kl_bits": Figure(float("nan"), "bits", 0.0, 1.0)})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_card(broken, tmp_path)
