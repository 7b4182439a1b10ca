"""Tables of what was measured, made from the data that the repository ships."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

from reference import table

from interp.records.record import open_run

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "_data"
PRIMITIVES = ROOT / "wind_tunnels" / "measured" / "primitives.csv"
ASSUMED, LIMITS = (ROOT / "tests" / "stress" / f"{name}.json" for name in ("simulations", "limits"))
CERTIFICATES = ROOT / "examples" / "certificates"


def data(name: str) -> str:
    """A file of `docs/_data` as a table."""
    head, *rows = _rows(DATA / f"{name}.csv")
    return table(head, rows)


def tunnels() -> str:
    """A row for each shipped network, from its card."""
    head = ("Tunnel", "parameters", "steps × batch", "KL, bits [95 %]", "worst position", "entropy error, bits",
            "KL of position alone", "core-seconds")  # fmt: skip
    return table(head, (_card_row(path) for path in sorted((ROOT / "wind_tunnels/checkpoints").glob("*/tunnel.json"))))


def _card_row(path: Path) -> list[str]:
    card = json.loads(path.read_text(encoding="utf-8"))
    figures, recipe, kl = card["figures"], card["recipe"], card["figures"]["kl_bits"]
    return [
        f"`{path.parent.name}`",
        f"{card['n_parameters']:,}",
        f"{recipe['n_steps']} × {recipe['batch']}",
        f"{kl['value']:.4f} [{kl['low']:.4f}, {kl['high']:.4f}]",
        f"{figures['worst_position_kl_bits']['value']:.4f}",
        f"{figures['mae_per_sequence_bits']['value']:.4f}",
        f"{card['baselines']['position']['kl_bits']:.3f}",
        f"{card['core_seconds']:.0f}",
    ]


def by_position() -> str:
    """KL / total variation of each shipped network at the first, middle and last of its scored positions."""
    found: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with (DATA / "shipped_by_position.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["task"], row["architecture"], row["network"]), []).append(row)
    head = ("Task", "Architecture", "Network", "Positions", "first", "a quarter", "half", "three quarters", "last")
    return table(head, (
        (f"`{task}`", f"`{arch}`", f"`{name}`", len(rows),
         *(_distances(rows[round(share * (len(rows) - 1))]) for share in (0, 0.25, 0.5, 0.75, 1)))
        for (task, arch, name), rows in sorted(found.items())
    ))  # fmt: skip


def _distances(row: dict[str, str]) -> str:
    return f"{float(row['kl_bits']):.4f} / {float(row['tvd']):.3f}"


def primitives() -> str:
    """KL of each architecture at the learning rates that did best with seed 0: that seed, then the other one."""
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    with PRIMITIVES.open(newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            runs.setdefault((run["primitive"], run["task"]), []).append(run)
    rows = [
        [f"`{arch}`", *(_best(arch, these) for these in runs.values())]
        for arch in sorted({run["arch"] for these in runs.values() for run in these})
    ]
    for name, column in (("uniform", "uniform"), ("best constant", "constant"), ("position alone", "position")):
        rows.append([name, *(f"{float(these[0][f'{column}_kl_bits']):.4f}" for these in runs.values())])
    return table(("Network", *(f"{primitive}: `{task}`" for primitive, task in runs)), rows)


def _best(arch: str, runs: list[dict[str, str]]) -> str:
    mine = [run for run in runs if run["arch"] == arch]
    best = min((run for run in mine if run["seed"] == "0"), key=lambda run: float(run["kl_bits"]))
    same = [run for run in mine if all(run[of] == best[of] for of in ("optimiser", "lr_muon", "lr_adamw"))]
    return ", ".join(f"{float(run['kl_bits']):.4f}" for run in sorted(same, key=lambda run: run["seed"]))


WORKS = {
    "128 tokens": "32 x 128 tokens", "512 tokens": "8 x 512", "2,048 tokens": "2 x 2,048",
    "Llama-3.2-1B, 128 tokens": "Llama-3.2-1B, 16 x 128",
}  # fmt: skip
METHODS = {
    "interp, last position": "`interp`, all observational probes, last position",
    "interp, entropy everywhere": "the same, attention entropy at every position",
    "interp, `--probe all`": "`interp run --probe all`, nulls at every position too",
    "interp, the same two alone": "`interp`, what the other libraries read and no more",
    "eager attention, plain hooks": "plain hooks, eager attention",
    "output_attentions=True": "`output_attentions=True`",
    "TransformerLens, names filtered": "TransformerLens, names filtered",
    "TransformerLens, names filtered, logits of the last position": "the same, last logits only",
    "TransformerLens, whole cache": "TransformerLens, whole cache",
    "nnsight, reduced in its trace": "nnsight, reduced in its trace",
    "nnterp, reduced in its trace": "nnterp, reduced in its trace",
}


def costs() -> str:
    """Time over the floor and MiB above it of each way of reading, as `make bench` measured them."""
    lines = _read(ROOT / "benchmarks" / "results.json")["lines"]
    measured = {(line["what"], line["work"], line["quantity"]): line["value"] for line in lines}

    def cell(*of: str) -> str:
        return f"{measured[*of, 'time']:.2f}, {measured[*of, 'memory']:,.0f}" if (*of, "time") in measured else ""

    rows = ([name, *(cell(method, work) for work in WORKS)] for method, name in METHODS.items())
    return table(("Time ratio, MiB above the baseline", *WORKS.values()), rows)


def rates(kind: str) -> str:
    """False positives, coverage and power over simulations: `assumed`, `broken`, or the `limits` of both."""
    return RATES[kind]()


def _assumed() -> str:
    head = ("Number", "Coverage", "False positives", "Excess of small p")
    return table(head, (
        (f"`{probe}.{number}`", *(_rate(found.get(key)) for key in ("covered", "called", "excess")))
        for probe, numbers in _read(ASSUMED)["rates"].items()
        for number, found in numbers.items()
    ))  # fmt: skip


def _broken() -> str:
    head = ("Number", "Simulation", "Judged", "False positives", "Coverage without, with an effect",
            "Power at effects of size 1, 2, 3")  # fmt: skip
    return table(head, (
        (f"`{path.name}.{row['number']}`", row["world"], f"{row['n_judged']} of {row['n_null']}",
         _rate(row["called"]) or "not tested", _together(row["covered"], row["covered_planted"]),
         _together(*(row[f"power_{size}"] for size in (1, 2, 3))))
        for path in sorted(CERTIFICATES.iterdir())
        for row in open_run(path).findings["certificate"].to_frame("worlds").to_dict("records")
    ))  # fmt: skip


def _together(*shares: float) -> str:
    return " ".join(_rate(share) for share in shares)


def _limits() -> str:
    reasons = (*_read(LIMITS).values(), *_read(ASSUMED)["known"].values())
    return "\n".join(f"- {reason}" for reason in dict.fromkeys(reasons))


RATES: dict[str, Callable[[], str]] = {"assumed": _assumed, "broken": _broken, "limits": _limits}


def outcomes() -> str:
    """How many claims of each paper, and of the third for each model, had which outcome."""
    kinds = ("supported", "contradicted", "no different from the null", "underpowered", "not measurable here")
    counts = {
        path.parent.name: Counter(cell["outcome"] for row in _read(path)["papers"][0]["rows"] for cell in row["cells"])
        for path in sorted((ROOT / "examples" / "ledger").glob("*/ledger.json"))
    }
    return table(("Paper", *kinds), ([name, *(found[kind] for kind in kinds)] for name, found in counts.items()))


def checked(numbers: str) -> str:
    """Rows of the ledgers as they were checked by hand: those that are named, `13/19`, or `all`."""
    titles = {
        row["number"]: row["title"]
        for path in (ROOT / "examples" / "ledger").glob("*/ledger.json")
        for row in _read(path)["papers"][0]["rows"]
    }
    rows = _rows(DATA / "checked_by_hand.csv")[1:]
    chosen = dict.fromkeys(row[0] for row in rows) if numbers == "all" else numbers.split("/")
    found = ((n, titles[int(n)], *row[1:]) for n in chosen for row in rows if row[0] == n)
    return table(("Row", "Claim", "Outcome", "What was found"), found)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def _rate(x: float | None) -> str:
    return "" if x is None or isnan(x) else f"{x:.3f}"
