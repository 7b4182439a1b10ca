"""What the commands of the wind tunnels print: figures, curves over positions and sweeps as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from interp.cli.terminal import show_table
from interp.records.tunnel_card import Figure, TunnelCard
from interp.table import Table


def print_figures(figures: Mapping[str, Figure], title: str | None = None) -> None:
    """Value, interval and limit of every figure; the entropy error stands below the KL, never alone."""
    rows = []
    for name, figure in figures.items():
        limit = "" if figure.limit is None else f"{figure.limit:g}{'' if figure.is_met else ' NOT MET'}"
        interval = f"{figure.low:.5f} to {figure.high:.5f}"
        rows.append((name, f"{figure.value:.5f}", interval, {"1": ""}.get(figure.unit, figure.unit), limit))
    show_table(title, ("figure", "value", "95 % interval", "unit", "limit"), rows)


def print_baselines(baselines: Mapping[str, Mapping[str, float]]) -> None:
    """What can be had without looking at the sequence."""
    errors = ("kl_bits", "mae_per_sequence_bits")
    rows = ((name, *(f"{found[error]:.5f}" for error in errors)) for name, found in baselines.items())
    show_table("without looking at the sequence", ("predictor", "KL, bits", "entropy error, bits"), rows)


def print_card(card: TunnelCard, folder: object) -> None:
    """Figures and floor of a finished training, and where it lies."""
    print_figures(card.figures, f"{card.name}, {card.n_parameters:,} parameters, {card.core_seconds:.0f} core-seconds")
    print_baselines(card.baselines)
    print(folder)


def print_table(table: Table) -> None:
    """A table with a unit under each name."""
    units = {name: {"label": "", "1": ""}.get(unit, unit) for name, unit in table.units.items()}
    heads = (
        f"{name.removesuffix('_bits').replace('_bits', '').replace('_', ' ')}\n{units[name]}" for name in table.columns
    )
    rows = zip(*(column.tolist() for column in table.columns.values()), strict=True)
    cells = ([f"{x:.5g}" if isinstance(x, float) else str(x) for x in row] for row in rows)
    show_table(table.caption, heads, cells)


def print_sweep(sweep: Mapping[str, Any]) -> None:
    """A row for each combination: means over seeds with both intervals, and the floor."""
    varied = [*dict.fromkeys(name for cell in sweep["cells"] for name in cell["settings"])]
    rows = []
    for cell in sweep["cells"]:
        position = cell["baselines"].get("position", {}).get("kl_bits")
        rows.append((
            *(str(cell["settings"].get(name, "")) for name in varied),
            f"{cell['n_parameters']:,}" if cell["n_parameters"] else "",
            str(len(cell["runs"])),
            _mean(cell["core_seconds"], "{:.0f}"),
            *(_both(cell, name) for name in ("kl_bits", "mae_per_sequence_bits")),
            "" if position is None else f"{position:.4f}",
        ))  # fmt: skip
    show_table(
        f"{sweep['task']}: mean over seeds (95 % t interval over seeds; span of the intervals over sequences)",
        (*varied, "parameters", "seeds", "core-seconds", "KL, bits", "entropy error, bits", "KL of position alone"),
        rows,
    )
    for cell in sweep["cells"]:
        for seed, words in cell["failures"].items():
            print(f"FAILED: {_settings(cell)}, seed {seed}: {_short(words)}")
        for run in cell["runs"]:
            if run["stage"] < run["n_stages"]:
                print(f"note: {run['folder']} ended in stage {run['stage']} of {run['n_stages']} of its curriculum")


def _both(cell: Mapping[str, Any], name: str) -> str:
    if not cell["runs"]:
        return "none finished"
    figure = cell["figures"][name]
    spans: Sequence[Sequence[float]] = [run["figures"][name]["interval"] for run in cell["runs"]]
    span = f"{min(low for low, _ in spans):.4f} to {max(high for _, high in spans):.4f}"
    seeds = "{:.4f} to {:.4f}".format(*figure["interval"]) if figure["interval"] else figure["interval_reason"]
    return f"{figure['mean']:.4f} ({seeds}; {span})"


def _short(failure: str) -> str:
    """A refusal in one line; of an error that was not foreseen the last line, the rest is in the file."""
    lines = [line.strip() for line in failure.strip().splitlines()]
    return lines[-1] if lines[0].startswith("Traceback") else " ".join(lines)


def _mean(figure: Mapping[str, Any], form: str) -> str:
    return "" if figure["mean"] is None else form.format(figure["mean"])


def _settings(cell: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in cell["settings"].items()) or "the only combination"
