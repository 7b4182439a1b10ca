"""What the commands print: tables of rich, the same numbers as on the page."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from interp.findings import COLUMNS, Findings
from interp.model import Check, Model, heads_in_words
from interp.records.record import RunRecord
from interp.registry import entries, load_entry
from interp.system.environment import environment
from interp.words import plain, short

if TYPE_CHECKING:
    from interp.ledger.ledger import LedgerFile
    from interp.records.diff import Diff
    from interp.records.tunnel_card import Figure
    from interp.running.plan import Plan
    from interp.table import Table as Columns


def print_record(record: RunRecord) -> None:
    """Every scalar of every probe with its interval and its null; headlines first and in bold."""
    console = _console()
    for name, findings in record.findings.items():
        of = f" of {escape(record.model['name'])}" if record.model else ""
        table = _table(f"{name}{of}", *COLUMNS)
        order = [*findings.headline, *(s for s in findings.scalars if s not in findings.headline)]
        for row in findings.rows_in_words(order):
            table.add_row(*(escape(plain(cell)) for cell in row), style="bold" if row[0] in findings.headline else "")
        console.print(table)
        for note in findings.notes:
            console.print(f"  {escape(note)}", style="dim", highlight=False)


def print_side_by_side(findings: Findings) -> None:
    """Right and wrong of one bug of the published code, each beside its null; then layer by layer."""
    console = _console()
    for name in ("side_by_side", "by_layer"):
        if name in findings.tables:
            found = findings.tables[name]
            table = _table(escape(found.caption), *(column.replace("_", " ") for column in found.columns))
            for row in zip(*found.columns.values(), strict=True):
                table.add_row(*(escape(x) if isinstance(x, str) else _short(float(x)) for x in row))
            console.print(table)
    for note in findings.notes:
        console.print(f"  {escape(note)}", style="dim", highlight=False)


def print_differences(found: "Columns") -> None:
    """The headline numbers of a comparison, each group against its reference."""
    table = _table("against the reference", "number", "", "against", "value", "difference", "95 % interval", "")
    for row in _rows(found):
        if row["is_headline"] and row["against"]:
            interval = "none" if math.isnan(row["difference_low"]) else (
                f"{_short(row['difference_low'])} to {_short(row['difference_high'])}"
            )  # fmt: skip
            cells = (f"{row['probe']}.{row['name']}", row["group"], row["against"], _short(row["value"]),
                     _short(row["difference"]), interval, row["verdict"])  # fmt: skip
            table.add_row(*map(escape, cells), style="bold" if row["verdict"] == "moved" else "")
    _console().print(table)


def print_diff(found: "Diff") -> None:
    """What moved, and what differs behind it; what stayed within the intervals is counted."""
    console = _console()
    if found.moved:
        table = _table("moved by more than the intervals", "number", "first", "second", "difference", "95 % interval")
        for each in found.moved:
            interval = "none to judge by" if each.interval is None else "{} to {}".format(*map(_short, each.interval))
            unit = "" if each.second.unit == "1" else f" {each.second.unit}"
            table.add_row(
                f"{each.probe}.{each.name}", _short(each.first.value), f"{_short(each.second.value)}{escape(unit)}",
                _short(each.difference), interval,
            )  # fmt: skip
        console.print(table)
    n = {verdict: sum(each.verdict == verdict for each in found.shifts) for verdict in ("within", "same")}
    print(f"{len(found.moved)} of {len(found.shifts)} numbers moved; {n['within']} are within their intervals, "
          f"{n['same']} the same")  # fmt: skip
    for which, names in (("first", found.only_first), ("second", found.only_second)):
        if names:
            print(f"only in the {which}: {', '.join(names)}")
    if found.settings:
        table = _table("what differs behind them", "", "first", "second")
        for each in found.settings:
            table.add_row(each.path, *(escape("–" if x is None else str(x)) for x in (each.first, each.second)))
        console.print(table)
    else:
        print("nothing else differs: same model, prompts, options, versions and machine")


def print_power(found: "Columns", every: bool) -> None:
    """The smallest effects that this n can show, beside what was measured."""
    console = _console()
    table = _table(
        found.caption, "number", "value", "null", "distance", "smallest above", "smallest below", "n", "",
    )  # fmt: skip
    for row in _rows(found):
        if every or row["is_headline"]:
            unit = "" if row["unit"] == "1" else f" {row['unit']}"
            numbers = (row["null"], row["effect"], row["smallest_above"], row["smallest_below"], row["n"])
            table.add_row(f"{row['probe']}.{row['name']}", f"{_short(row['value'])}{escape(unit)}",
                          *map(_short, numbers), escape(row["reason"]))  # fmt: skip
    console.print(table)


def _rows(table: "Columns") -> Iterator[dict[str, Any]]:
    for row in zip(*(column.tolist() for column in table.columns.values()), strict=True):
        yield dict(zip(table.columns, row, strict=True))


def _with_interval(figure: "Figure | None") -> str:
    return f"{figure.value:.4f} ({figure.low:.4f} to {figure.high:.4f})" if figure else "not measured"


def _short(x: float) -> str:
    return plain(short(x))


def print_plan(plan: "Plan") -> None:
    """What a run will cost: passes by kind, then memory, disk and time."""
    i = plan.model
    print(
        f"{i.name}: {i.family}, {i.n_layers} layers, {heads_in_words(i)}, {i.n_parameters:,} parameters, "
        f"{i.dtype} on {i.device}; nothing of it was loaded"
    )
    table = _table(
        None, "passes", "n", "prompts", "tokens each", "blocks", "reading", "analysing, about", whole=slice(1, None)
    )
    for what, group in groupby(plan.steps, key=lambda step: step.what):
        alike = list(group)
        blocks = sorted({s.n_blocks for s in alike})
        through = str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
        read = "" if plan.seconds is None else _duration(sum(s.seconds or 0.0 for s in alike))
        analysing = sum(s.analysis_seconds for s in alike)
        row = (f"{sum(s.n for s in alike):,}", f"{alike[0].n_prompts:,}", f"{alike[0].n_tokens:,}", through, read)
        table.add_row(escape(what), *row, _duration(analysing) if analysing else "")
    _console().print(table)
    print(f"passes   {plan.n_passes:,}, {plan.n_tokens:,} tokens in all, padding included")
    m = plan.memory
    device = f", and {_size(m.on_device)} on {i.device}" if m.on_device else ""
    fits = "free" if plan.fits else "free: IT DOES NOT FIT (bfloat16, --device-map auto, or a larger machine)"
    print(f"memory   {_size(m.peak)} at the peak, weights {_size(m.weights)}{device}; {_size(plan.free)} are {fits}")
    fetched = f", after a download of {_size(plan.download)}" if plan.download else ""
    print(f"disk     {_size(plan.disk)} for the record and its page{fetched}")
    if plan.seconds is not None:
        low, high = plan.seconds
        print(f"time     {_duration(low)} to {_duration(high)}, download not counted")
    for note in plan.notes:
        print(f"note     {note}")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{_short(seconds)} s"
    return f"{_short(seconds / 60)} min" if seconds < 3600 else f"{_short(seconds / 3600)} h"


def _size(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


def print_checks(model: Model, checks: Sequence[Check]) -> None:
    """The self-check as a table, passed or not."""
    from interp.checking.selfcheck import left_out
    from interp.loading.placement import precision_hazard

    table = _table(f"self-check of {escape(model.name)}", "check", "what", "worst", "bound", "")
    for c in checks:
        mark = "[green]passed[/]" if c.passed else "[bold red]FAILED[/]"
        table.add_row(c.name, escape(c.meaning), _short(c.value), _short(c.bound), mark)
    _console().print(table)
    missing = left_out(model)
    if missing:
        print(f"left out, as the model has nothing for them: {', '.join(missing)}")
    i = model.info
    print(
        f"{i.name}: {i.family}, {i.n_layers} layers, {heads_in_words(i)}, "
        f"{i.n_parameters:,} parameters, {i.dtype} on {i.device}, weights {model.fingerprint[:12]}"
    )
    hazard = precision_hazard(i.dtype)
    if hazard:
        print(hazard)


def print_environment() -> None:
    """Versions and devices, one line each."""
    e = environment()
    packages = ", ".join(f"{name} {version}" for name, version in e["packages"].items() if version)
    print(f"Python {e['python']} on {e['platform']}, {e['threads']} threads, GPUs: {', '.join(e['gpus']) or 'none'}")
    print(packages)


def print_ledger(ledger: "LedgerFile") -> None:
    """Every claim with its outcome, model by model; what was measured stands on the page."""
    console = _console()
    for paper in ledger.papers:
        table = _table(escape(paper.title), "", "claim", "of", "outcome", "why")
        for row in paper.rows:
            for i, cell in enumerate(row.cells):
                named = (str(row.number), escape(row.title)) if i == 0 else ("", "")
                table.add_row(*named, escape(cell.model), cell.outcome, escape(cell.why))
        console.print(table)
        console.print("  " + ", ".join(f"{count} {outcome}" for outcome, count in paper.counts.items() if count))


def print_models() -> None:
    """The aliases with their sizes."""
    from interp.loading.aliases import ALIASES

    table = _table(None, "alias", "hub id", "family", "layers", "heads", "KV heads", "head size", "parameters", "gated")
    for name, a in ALIASES.items():
        sizes = (a.n_layers, a.n_heads, a.n_kv_heads, a.d_head)
        table.add_row(
            name,
            a.hub_id,
            a.family,
            *(str(x) for x in sizes),
            _count(a.n_parameters),
            "yes" if a.gated else "no",
        )
    _console().print(table)
    print("Any other hub id, a local folder or a tunnel (`interp list tunnels`) works as well.")


def print_probes() -> None:
    """The installed probes with their questions and fields."""
    _print_questions("probe", "PROBE.field=value")


def print_studies() -> None:
    """The installed studies with their questions and fields."""
    _print_questions("study", "field=value")


def _print_questions(kind: Literal["probe", "study"], setting: str) -> None:
    table = _table(None, kind, "question", f"fields (--set {setting})")
    for name in entries(kind):
        cls = load_entry(kind, name)
        fields = ", ".join(f"{k}={v}" for k, v in cls().parameters().items())
        table.add_row(name, escape(cls.question), escape(fields))
    _console().print(table)


def print_prompts() -> None:
    """The built-in prompt sets."""
    from interp.prompting.files import needs_tokenizer

    table = _table(None, "set", "prompts", "where it comes from")
    for name in entries("prompt"):
        make = load_entry("prompt", name)
        if needs_tokenizer(make):
            table.add_row(
                name, "any", escape(f"{(make.__doc__ or '').strip().splitlines()[0]} Made for each tokenizer.")
            )
            continue
        prompts = make()
        table.add_row(name, str(len(prompts)), escape(prompts.source))
    _console().print(table)
    print("A .jsonl, .csv, .parquet or .txt file can be given in the place of a name.")


def print_tunnels() -> None:
    """The shipped wind-tunnel models with the divergence from the exact posterior that each reaches."""
    from interp.loading.sources import kept_steps, shipped_tunnels
    from interp.records.tunnel_card import read_card

    table = _table(None, "model", "question", "KL, bits", "of position alone", "entropy error, bits", "steps (@)")
    for name, folder in shipped_tunnels().items():
        card = read_card(folder)
        blind = card.baselines.get("position", {}).get("kl_bits", math.nan)
        table.add_row(
            f"tunnel:{name}",
            escape(load_entry("tunnel", card.task).question),
            _with_interval(card.figures.get("kl_bits")),
            _short(blind),
            _with_interval(card.figures.get("mae_per_sequence_bits")),
            " ".join(str(step) for step in kept_steps(folder)),
        )
    _console().print(table)
    print("Tasks that can be trained: " + ", ".join(entries("tunnel")) + " (`interp tunnel train TASK`).")


def _console() -> Console:
    """As wide as the terminal; wide enough for whole names where the output goes to a file."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=160)


def _count(n: int) -> str:
    return f"{n / 1e9:.2f}B" if n >= 1e9 else f"{n / 1e6:.0f}M"


def _table(title: str | None, *columns: str, whole: slice = slice(1)) -> Table:
    """A table whose cells are folded where the terminal is narrow, but for those of the columns kept `whole`."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    kept = range(len(columns))[whole]
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i in kept)
    return table
