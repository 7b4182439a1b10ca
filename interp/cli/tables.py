"""Tables that commands print, with the numbers of the page."""

import inspect
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from interp.capture import ModelInfo
from interp.certificates.verdicts import MEANINGS, Count
from interp.cli.terminal import show_answer, show_notes, show_table
from interp.findings import COLUMNS as ALL_COLUMNS
from interp.formatting import plain, short, size, with_unit
from interp.model import Check, Model, heads_in_words
from interp.records.answers import answers, settled, unclear
from interp.records.headlines import COLUMNS, contradictions, headlines, tried
from interp.records.record import RunRecord
from interp.registry import entries, load_entry
from interp.settings import field_words
from interp.statistics.quantities import in_general

if TYPE_CHECKING:
    from interp.ledger.ledger import LedgerFile
    from interp.probe import Probe
    from interp.records.diff import Diff
    from interp.running.plan import Plan
    from interp.table import Table as Columns


def print_record(record: RunRecord, verbose: bool = False) -> None:
    """The answer of every probe in a sentence; `verbose` adds all numbers, their controls and notes."""
    found = answers(record)
    for answer in settled(found):
        show_answer(*map(plain, (answer.question, answer.said, answer.evidence, answer.change)))
    show_notes(map(plain, (unclear(found), *record.cautions, *contradictions(record.findings))))
    if not verbose:
        n = sum(len(findings.scalars) for findings in record.findings.values())
        return show_notes([f"{n} number{'s' * (n != 1)}, controls and notes: with -v, and on the page."])
    numbers = headlines(record.findings)
    for name, findings in record.findings.items():
        mine = [h for h in numbers if h.probe == name]
        if mine:
            show_table(name, COLUMNS, (map(plain, h.cells) for h in mine))
        show_table(
            f"all numbers of {name}", ALL_COLUMNS, (map(plain, r) for r in findings.rows_in_words(findings.scalars))
        )
        show_notes([f"{h.name}: {'; '.join(map(plain, h.controls_in_words))}" for h in mine if h.controls])
        show_notes(findings.notes)
    show_notes([tried(record.findings)])


def print_certificate(record: RunRecord) -> None:
    """A row for every headline number of the certified probe: its verdict, and shares of simulations."""
    found = record.findings["certificate"]
    head = ("number", "verdict", "significant without an effect", "worst kind", "interval covers", "with an effect")
    rows = [*found.tables["headlines"].rows()]
    cells = (
        (row["number"], row["word"], _counted(row, "called", "n_judged"), _counted(row, "worst", "n_worst"),
         _counted(row, "covered", "n_covered"),
         " ".join(_short(row[f"power_{i}"]) for i in (1, 2, 3)) if row["n_planted"] else "")
        for row in rows
    )  # fmt: skip
    show_table(f"certificate of {record.spec['certified']['name']}", head, cells)
    show_notes([f"{row['number']}: {row['why']}." for row in rows if row["why"] != MEANINGS[row["word"]]])
    show_notes(found.notes)


def _counted(row: Mapping[str, Any], name: str, of: str) -> str:
    """`0.045 of 400 (0.027 to 0.07)`; empty where too few simulations were counted."""
    if not math.isfinite(row[name]):
        return ""
    interval = Count(round(row[name] * row[of]), row[of]).interval()
    return f"{_short(row[name])} of {row[of]} ({_range(interval, '')})"


def print_differences(found: "Columns") -> None:
    """The headline numbers of a comparison, each group against its reference, with verdicts."""
    value_of = {(row["probe"], row["name"], row["group"]): row["value"] for row in found.rows()}
    rows = []
    for row in found.rows():
        if row["is_headline"] and row["against"]:
            interval = None if math.isnan(row["difference_low"]) else (row["difference_low"], row["difference_high"])
            reference = value_of.get((row["probe"], row["name"], row["against"]), math.nan)
            shown = ": ".join(part for part in (row.get("found", row["verdict"]), row.get("note", "")) if part)
            rows.append((f"{row['probe']}.{row['name']}", row["against"], _short(reference), row["group"],
                         _short(row["value"]), _short(row["difference"]), _range(interval, "none"), shown))  # fmt: skip
    columns = ("number", "reference", "", "", "", "difference", "95 % interval", "")
    if rows:
        show_table("against the reference", columns, rows)


def print_diff(found: "Diff") -> None:
    """The numbers that moved, and settings that differ; numbers within their intervals are counted."""
    for title, shifts in (
        ("moved by more than the intervals", found.moved),
        ("changed, and cannot be tested", found.differing),
    ):
        columns = ("number", "first", "second", "difference", "95 % interval")
        rows = [
            (f"{each.probe}.{each.name}", _measured(each.first.value, each.first.unit),
             _measured(each.second.value, each.second.unit), _short(each.difference), _range(each.interval, "none"))
            for each in shifts
        ]  # fmt: skip
        if rows:
            show_table(title, columns, rows)
    print(found)
    for which, names in (("first", found.only_first), ("second", found.only_second)):
        if names:
            print(f"only in the {which}: {', '.join(names)}")
    if any(setting.path == "prompts.clusters.by" for setting in found.settings):
        print("the runs do not resample the same things (prompts.clusters.by), and may differ by that alone")
    if found.settings:
        rows = ((s.path, *("–" if x is None else str(x) for x in (s.first, s.second))) for s in found.settings)
        show_table("what differs behind them", ("", "first", "second"), rows)
    else:
        print("nothing else differs: same model, prompts, options, versions and machine")


def print_power(found: "Columns", every: bool) -> None:
    """The smallest effects that this n can detect, with the measured numbers."""
    numbers = ("null", "effect", "smallest_above", "smallest_below", "n")
    rows = (
        (f"{row['probe']}.{row['name']}", _measured(row["value"], row["unit"]),
         *(_short(row[name]) for name in numbers), row["reason"])
        for row in found.rows() if every or row["is_headline"]
    )  # fmt: skip
    columns = ("number", "value", "null", "distance", "smallest above", "smallest below", "n", "")
    show_table(found.caption, columns, rows)


def _short(x: float) -> str:
    return plain(short(x))


def _measured(value: float, unit: str) -> str:
    return with_unit(_short(value), unit)


def _range(interval: tuple[float, float] | None, otherwise: str) -> str:
    return otherwise if interval is None else "{} to {}".format(*map(_short, interval))


def print_plan(plan: "Plan") -> None:
    """The cost of a run: passes by kind, then memory, disk and time."""
    print(f"{_shape(plan.model)}; nothing of it was loaded")
    rows = []
    for what, group in groupby(plan.steps, key=lambda step: step.what):
        steps = list(group)
        blocks = sorted({s.n_blocks for s in steps})
        through = str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
        analysing = sum(s.analysis_seconds for s in steps)
        row = (f"{sum(s.n for s in steps):,}", f"{steps[0].n_prompts:,}", f"{steps[0].n_tokens:,}", through)
        times = (_duration(sum(s.seconds for s in steps)), _duration(analysing) if analysing else "")
        rows.append((what, *row, *times))
    columns = ("passes", "n", "prompts", "tokens each", "blocks", "reading", "analysing, about")
    show_table(None, columns, rows, whole=slice(1, None))
    print(f"passes   {plan.n_passes:,}, {plan.n_tokens:,} tokens in all, padding included")
    m = plan.memory
    device = f", and {size(m.on_device)} on {plan.model.device}" if m.on_device else ""
    fits = "free" if plan.fits else "free: IT DOES NOT FIT (bfloat16, --device-map auto, or a larger machine)"
    print(f"memory   {size(m.peak)} at the peak, weights {size(m.weights)}{device}; {size(plan.free)} are {fits}")
    fetched = f", after a download of {size(plan.download)}" if plan.download else ""
    print(f"disk     {size(plan.disk)} for the record and its page{fetched}")
    print("time     {} to {}, download not counted".format(*map(_duration, plan.seconds)))
    for note in plan.notes:
        print(f"note     {note}")


def _shape(i: ModelInfo) -> str:
    heads = f"{i.n_layers} layers, {heads_in_words(i)}"
    return f"{i.name}: {i.family}, {heads}, {i.n_parameters:,} parameters, {i.dtype} on {i.device}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{_short(seconds)} s"
    return f"{_short(seconds / 60)} min" if seconds < 3600 else f"{_short(seconds / 3600)} h"


def print_checks(model: Model, checks: Sequence[Check]) -> None:
    """The self-check as a table, passed or not."""
    from interp.loading.placement import hazards
    from interp.self_check.selfcheck import left_out

    marks = {True: Text("passed", style="green"), False: Text("FAILED", style="bold red")}
    rows = ((c.name, c.meaning, _short(c.value), _short(c.bound), marks[c.passed]) for c in checks)
    show_table(f"self-check of {model.name}", ("check", "what", "worst", "bound", ""), rows)
    missing = left_out(model)
    if missing:
        print(f"left out, as the model has nothing for them: {', '.join(missing)}")
    print(f"{_shape(model.info)}, weights {model.fingerprint[:12]}")
    for hazard in hazards(model.info.dtype, model.info.stored_as):
        print(hazard)


def print_ledger(ledger: "LedgerFile") -> None:
    """Every claim with its outcome, model by model; the measured numbers are on the page."""
    from interp.ledger.ledger import counts

    for paper in ledger.papers:
        for heading, mine in paper.parts.items():
            rows = (
                (*((str(row.number), row.title) if i == 0 else ("", "")), cell.model, cell.outcome, cell.why)
                for row in mine
                for i, cell in enumerate(row.cells)
            )
            show_table(heading or paper.title, ("", "claim", "of", "outcome", "why"), rows)
            print("  " + ", ".join(f"{count} {outcome}" for outcome, count in counts(mine).items() if count))


def print_models() -> None:
    """The aliases with their sizes, and the compiled programs."""
    from interp.loading.aliases import ALIASES
    from interp.loading.sources import PROGRAM, shipped_programs

    rows = (
        (name, a.hub_id, a.family, *map(str, (a.n_layers, a.n_heads, a.n_kv_heads, a.d_head)), _count(a.n_parameters),
         "yes" if a.gated else "no")
        for name, a in ALIASES.items()
    )  # fmt: skip
    columns = ("alias", "hub id", "family", "layers", "heads", "KV heads", "head size", "parameters", "gated")
    show_table(None, columns, rows)
    print(f"Programs whose mechanism is known: {', '.join(PROGRAM + name for name in shipped_programs())}.")
    print("Any other hub id, a local folder or a tunnel (`interp list tunnels`) works as well.")


def print_families() -> None:
    """The model families that can be read, with notes, and those that cannot, with reasons.

    For a registered family the module is named, as importing it would import torch.
    """
    from interp.families import REFUSED, families_of_transformers

    known = {
        kind: (family.note, "; ".join(f"{field} = {value}: {reason}" for field, value, reason in family.refused))
        for kind, family in families_of_transformers().items()
    }
    known |= {kind: (f"registered by {entry.module}", "") for kind, entry in entries("family").items()}
    rows = ((kind, *notes) for kind, notes in sorted(known.items()))
    show_table("families that can be read", ("model_type", "special", "but not"), rows)
    refused = ((kind, name, reason) for kind, (name, reason) in REFUSED.items())
    show_table("families that cannot be read", ("model_type", "called", "why"), refused)
    print("Every model is checked when it is loaded, whatever its family: `interp check --model ...`.")


def print_questions(kind: Literal["probe", "study"]) -> None:
    """The installed probes or studies with their questions."""
    classes = {name: load_entry(kind, name) for name in entries(kind)}
    rows = [(name, cls.question, *([_kind_of(cls)] if kind == "probe" else ())) for name, cls in classes.items()]
    show_table(None, (kind, "question", *(["kind"] if kind == "probe" else ())), rows)
    print(f"`interp list {'probes' if kind == 'probe' else 'studies'} NAME` shows the settings and numbers of one.")


def _kind_of(probe: "type[Probe]") -> str:
    """`all` runs the observational probes, `everything` the causal ones too; a probe of training has to be named."""
    if probe.follows_checkpoints:
        return "training"
    return "observational" if probe.observational else "causal"


def print_fields(kind: Literal["probe", "study"], name: str) -> None:
    """The question of a probe or study, its fields with their defaults, and its numbers with their meanings."""
    cls = load_entry(kind, name)
    print(f"{name}: {cls.question}\n\n{inspect.cleandoc(cls.__doc__ or '')}\n")
    defaults = cls().parameters()
    takes = {field: ", ".join(known) for field, known in field_words(cls).items() if len(known) > 1}
    rows = ((field, str(value), takes.get(field, "")) for field, value in defaults.items())
    show_table(None, ("setting (--set SETTING=VALUE)", "default", "takes"), rows)
    rows = [
        (n.format(prefix="entropy"), "yes" if of.is_headline else "", of.unit, in_general(of.meaning))
        for n, of in sorted(cls.quantities.items(), key=lambda item: not item[1].is_headline)
    ]
    if rows:
        show_table("its numbers", ("number", "headline", "unit", "what it says"), rows)
        show_notes(["A run fills in the words in capitals."])


def print_prompts() -> None:
    """The built-in prompt sets."""
    from interp.prompting.files import needs_tokenizer

    rows = []
    for name in entries("prompt"):
        make = load_entry("prompt", name)
        if needs_tokenizer(make):
            rows.append((name, "any", f"{(make.__doc__ or '').strip().splitlines()[0]} Made for each tokenizer."))
        else:
            rows.append((name, str(len(prompts := make())), prompts.source))
    show_table(None, ("set", "prompts", "where it comes from"), rows)
    print("A .jsonl, .csv, .tsv, .parquet or .txt file can be given in the place of a name.")


def print_tunnels() -> None:
    """The shipped wind-tunnel models, each with its divergence from the exact posterior."""
    from interp.loading.sources import kept_steps, shipped_tunnels
    from interp.records.tunnel_card import read_card

    rows = []
    for name, folder in shipped_tunnels().items():
        card = read_card(folder)
        blind = card.baselines.get("position", {}).get("kl_bits", math.nan)
        figures = (card.figures.get(name) for name in ("kl_bits", "mae_per_sequence_bits"))
        kl, error = (f"{x.value:.4f} ({x.low:.4f} to {x.high:.4f})" if x else "not measured" for x in figures)
        steps = " ".join(str(step) for step in kept_steps(folder))
        rows.append((f"tunnel:{name}", load_entry("tunnel", card.task).question, kl, _short(blind), error, steps))
    columns = ("model", "question", "KL, bits", "of position alone", "entropy error, bits", "steps (@)")
    show_table(None, columns, rows)
    print("Tasks that can be trained: " + ", ".join(entries("tunnel")) + " (`interp tunnel train TASK`).")


def _count(n: int) -> str:
    return f"{n / 1e9:.2f}B" if n >= 1e9 else f"{n / 1e6:.0f}M"
