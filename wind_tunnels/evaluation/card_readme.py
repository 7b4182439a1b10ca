"""The card of a checkpoint as a page for people: its `README.md`."""

from collections.abc import Mapping, Sequence
from typing import Any

from interp.records.tunnel_card import Figure, TunnelCard
from interp.tunnel import Task


def in_words(card: TunnelCard, task: Task, notes: Sequence[str] = ()) -> str:
    """Figures beside the no-skill floor, what the network is, how it was trained and how to train it again."""
    lines = [
        f"# {card.name}",
        "",
        f"{task.question} Task `{card.task}` ({_listed(card.parameters)}), {card.n_parameters:,} parameters.",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM",
        "",
        "model = AutoModelForCausalLM.from_pretrained(folder)",
        "```",
        "",
        f"Measured against the exact posterior on {card.n_eval:,} fresh sequences (95 % bootstrap over sequences):",
        "",
        "| figure | value | interval | limit |",
        "|---|---|---|---|",
        *(_figure_row(name, figure) for name, figure in card.figures.items()),
        "",
        *(f"- {note}" for note in notes),
        *([""] if notes else []),
        "Without inference over the whole sequence one gets:",
        "",
        "| predictor | entropy error, bits | KL, bits |",
        "|---|---|---|",
        *(
            f"| {name} | {errors['mae_per_sequence_bits']:.4f} | {errors['kl_bits']:.4f} |"
            for name, errors in card.baselines.items()
        ),
        "",
        f"Network: {card.arch}, {_listed(card.network)}.",
        "",
        _history(card),
        "",
    ]
    return "\n".join(lines)


def _history(card: TunnelCard) -> str:
    recipe = card.recipe
    n_shown = card.step * int(recipe["batch"])
    what = "fresh sequences" if recipe.get("n_distinct") is None else f"times one of {recipe['n_distinct']:,} sequences"
    origin = f" It started from the weights of {card.init['tunnel']}." if card.init else ""
    where = ", ".join(f"{name} {value}" for name, value in card.environment.items())
    seen = ""
    if "seen_share" in card.figures:
        seen = " `seen_share` is the share of the evaluated sequences among them, with the exact interval of a count."
    return (
        f"Recipe: {_listed(recipe)}, seed {card.seed}.{origin} It was shown {n_shown:,} {what} in "
        f"{card.core_seconds:.0f} core-seconds, one thread ({where}).{seen} "
        f"A rebuild (`interp tunnel rebuild {card.name}`) has to come within a factor of {1 + card.tolerance:g} of "
        "every figure that has a limit."
    )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items() if value is not None)


def _figure_row(name: str, figure: Figure) -> str:
    limit = "" if figure.limit is None else f"{figure.limit:g}"
    unit = {"1": "", "fraction": ""}.get(figure.unit, f" {figure.unit}")
    return f"| `{name}` | {figure.value:.5f}{unit} | {figure.low:.5f} to {figure.high:.5f} | {limit} |"
