"""A record in words: its question, how to repeat it, and how to describe and cite it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interp.errors import InterpError
from interp.findings import Scalar
from interp.formatting import DASH, of_clusters, p_equals, printable, short, short_name
from interp.records.record import CHANGED, RunRecord
from interp.running.spec import RunSpec
from interp.table import Table

MODEL_FIELDS: Mapping[str, str] = {
    "name": "name", "source": "loaded from", "revision": "revision", "fingerprint": "weight fingerprint",
    "family": "family", "text_part_of": "text part of", "n_parameters": "parameters", "n_layers": "layers",
    "n_heads": "query heads",
    "n_kv_heads": "key and value heads", "d_head": "head size", "d_model": "width", "vocab_size": "vocabulary",
    "n_rotary": "rotated dimensions of a head", "window": "attention window", "parallel_blocks": "parallel blocks",
    "max_positions": "longest input", "dtype": "precision", "device": "device",
    "quantisation": "quantisation", "stored_as": "quantised weights",
    "adapter": "adapter merged into the weights", "attention_kernel": "attention kernel",
}  # fmt: skip
PROMPT_FIELDS: Mapping[str, str] = {
    "name": "set", "source": "source", "n": "prompts in the set", "unit": "unit", "hash": "content hash",
    "seed": "seed", "window": "token window", "n_truncated": "cut to the window",
}  # fmt: skip

_NAMED = 4
"""The most probes that are named; more are counted."""


def asked(record: RunRecord) -> str:
    """The question of a record of several probes."""
    probes = [name.replace("_", " ") for name in record.findings or record.spec.get("probes", {})]
    if not probes:
        return f"What do the probes find in {heading(record)}?"
    asking = f"{len(probes)} probes" if len(probes) > _NAMED else f"the probe{'s' * (len(probes) > 1)} {listed(probes)}"
    return f"What {'do' if len(probes) > 1 else 'does'} {asking} find in {heading(record)}?"


def read_on(record: RunRecord) -> list[str]:
    """The model's family and sizes, and the prompts, in a few words; for a comparison those of every run."""
    if is_study(record):
        compared = _compared_with(record)
        groups, reference = compared or ([], "")
        apart = set(references(record).get(reference, ())) - {*groups}
        read_by = sorted(_runs(record), key=lambda each: each[0] == reference)
        return [f"{run}: {read}" for run, read, _ in read_by if run not in apart]
    others = [_of_set(each, each.get("clusters")) for each in record.prompts.get("others", ())]
    read = _of_set(record.prompts, record.prompts.get("clusters"))
    return [*filter(None, [_sizes(record)]), read, *others]


def briefly(record: RunRecord) -> str:
    """`llama, 30 layers of width 576, 135M parameters, 1,008 prompts of “mixed”`: a run beside others.

    Changes of the model are added: `edited (ablate z at layer 3, heads 1, 2)`.
    """
    sets = [each for each in (record.prompts, *record.prompts.get("others", ())) if each.get("n")]
    changes = (("edited", record.edits_in_words), ("adapted", record.model.get("adapter")))
    changed = [f"{how} ({what})" for how, what in changes if what]
    return ", ".join([*filter(None, [_sizes(record)]), *map(_of_set, sets), *changed])


def _sizes(record: RunRecord) -> str:
    """`llama, 30 layers of width 576, 135M parameters`, as far as known."""
    model = record.model
    sizes = [str(model["family"])] if model.get("family") else []
    width = f" of width {model['d_model']}" if model.get("d_model") else ""
    sizes += [f"{model['n_layers']} layers{width}"] if model.get("n_layers") else []
    sizes += [f"{_count(model['n_parameters'])} parameters"] if model.get("n_parameters") else []
    return ", ".join(sizes)


def references(record: RunRecord) -> dict[str, list[str]]:
    """The references of a comparison, each with its groups; empty for other records."""
    found = record.findings.get("comparison")
    return _references(found.tables) if found else {}


def _references(tables: Mapping[str, Table]) -> dict[str, list[str]]:
    held = tables.get("differences")
    pairs = {} if held is None else dict.fromkeys(zip(held["group"], held["against"], strict=True))
    return {ref: [group for group, other in pairs if other == ref] for _, ref in pairs if ref}


def on_other_prompts(tables: Mapping[str, Table]) -> set[str]:
    """The groups of a comparison that read other prompts than their reference."""
    held = tables["settings"].rows() if "settings" in tables else ()
    read = {row["run"]: row["value"] for row in held if row["setting"] == "prompts.hash"}
    runs: dict[str, set[str]] = {}
    for row in tables["numbers"].rows():
        runs.setdefault(row["group"], set()).add(row["run"])
    prompts = {group: {read.get(run) for run in mine} for group, mine in runs.items()}
    return {each for ref, mine in _references(tables).items() for each in mine if prompts[each] != prompts[ref]}


def _runs(record: RunRecord) -> list[tuple[str, str, str]]:
    """The runs of a comparison: name, what it read, how its weights are quantised; empty for other records."""
    found = record.findings.get("comparison")
    held = found.tables.get("runs") if found else None
    return [] if held is None else [(row["run"], row["read"], row["quantised"]) for row in held.rows()]


def is_study(record: RunRecord) -> bool:
    """Whether the record is of a study."""
    return "study" in record.spec


def model_name(record: RunRecord) -> str:
    """The model that was read, or the name of the study."""
    if is_study(record):
        return str(record.spec["study"]).replace("_", " ")
    return str(record.model.get("name") or record.spec.get("model") or "unnamed model")


def heading(record: RunRecord) -> str:
    """The model's name for the top of the page, of a path only its end; for a comparison what is compared."""
    compared = _compared_with(record)
    if compared is None:
        return short_name(model_name(record))
    return f"{_those(compared[0])} compared with {compared[1]}"


def title(record: RunRecord) -> str:
    """`Does b differ from a?`: what a comparison asks; the name of another study."""
    compared = _compared_with(record)
    if compared is None:
        return heading(record)
    return f"{'Does' if len(compared[0]) == 1 else 'Do'} {_those(compared[0])} differ from {compared[1]}?"


def _compared_with(record: RunRecord) -> tuple[list[str], str] | None:
    """The compared groups and their reference; None unless there is one reference."""
    match list(references(record).items()):
        case [(reference, groups)]:
            apart = on_other_prompts(record.findings["comparison"].tables)
            return [group for group in groups if group not in apart] or groups, reference
    return None


def _those(groups: list[str]) -> str:
    return listed(groups) if len(groups) <= _NAMED else f"{len(groups)} runs"


def prompts_in_words(record: RunRecord) -> str:
    """How many prompts, out of which set, and how they were drawn."""
    n_drawn = (record.prompts.get("draw") or {}).get("n_drawn")
    drawn = f" (some results: at most {n_drawn} of them)" if n_drawn else ""
    return _of_set(record.prompts, record.prompts.get("clusters")) + drawn


def _of_set(prompts: Mapping[str, Any], clusters: Mapping[str, Any] | None = None) -> str:
    """`1,750 prompts of 250 problems, of “sula”`; without the clusters `1,750 prompts of “sula”`."""
    if not prompts.get("n"):
        return "no prompts"
    n, by = (clusters["n"], clusters["by"]) if clusters else (prompts["n"], "")
    those = of_clusters(prompts["n"], prompts.get("unit", "prompt"), n, by)
    return f"{those}{',' * (n < prompts['n'])} of “{prompts.get('name', 'an unnamed set')}”"


def python(record: RunRecord) -> str | None:
    """The Python that repeats the run; None if the record has no full specification."""
    if is_study(record):
        return None
    try:
        return RunSpec.of(record).python
    except (InterpError, TypeError):
        return None


def caution(record: RunRecord) -> str:
    """A warning on all numbers: unchecked arrays, or differences between the runs of a comparison."""
    if record.model.get("selfcheck"):
        return f"Captured by {record.spec.get('tool', 'another program')}; self-check: {record.model['selfcheck']}."
    said = [CHANGED.format(f"Quantised weights of {run}", "quantised") for run, _, kinds in _runs(record) if kinds]
    tables = record.findings["comparison"].tables if _runs(record) else {}
    is_other = "settings" in tables and "prompts.hash" in tables["settings"]["setting"]
    if is_other and on_other_prompts(tables) == {each for mine in _references(tables).values() for each in mine}:
        said.append("Where runs read different prompts, numbers can differ for this reason alone.")
    if settings := "; ".join(_settings_of_probes(tables)):
        said.append(f"Probes had different settings, and numbers can differ for this reason alone: {settings}.")
    return " ".join(said)


def _settings_of_probes(tables: Mapping[str, Table]) -> Iterator[str]:
    """`manifold.site: v (a and b), resid (c)`: probes' settings that differ, but sample sizes and seeds."""
    ran = {(row["run"], row["probe"]) for row in tables["numbers"].rows()} if "settings" in tables else ()
    found: dict[str, dict[str, list[str]]] = {}
    for row in tables["settings"].rows() if ran else ():
        (*of, probe, name) = ("", "", *row["setting"].split(".", 3))[-4:]
        if of == ["spec", "probes"] and not re.match("n_|seed$", name) and (row["run"], probe) in ran:
            found.setdefault(f"{probe}.{name}", {}).setdefault(row["value"], []).append(row["run"])
    for setting, runs in found.items():
        if len(runs) > 1:
            values = (f"{value.replace(DASH, 'its default')} ({_those(mine)})" for value, mine in runs.items())
            yield f"{setting}: {', '.join(values)}"


def methods(record: RunRecord) -> str:
    """Sentences for a methods section: model and weights, prompts, and statistics."""
    if is_study(record):
        return f"We ran the study {model_name(record)} of {tool(record.environment)}."
    model = record.model
    identity = [
        f"{label} {model[key]}"
        for key, label in (("source", "from"), ("revision", "revision"), ("fingerprint", "weights"), ("dtype", "in"))
        if model.get(key)
    ]
    hashed = f" (content hash {str(record.prompts['hash'])[:16]})" if record.prompts.get("hash") else ""
    return (
        f"Using {tool(record.environment)}, we read {model_name(record)} ({', '.join(identity)}) on "
        f"{prompts_in_words(record)}{hashed}, seed {record.spec.get('seed', 0)}. Intervals are 95 %. p is corrected by "
        f"Benjamini and Hochberg over the {len(_headline(record))} headline numbers of the record."
    )


def _headline(record: RunRecord) -> list[Scalar]:
    return [findings[name] for findings in record.findings.values() for name in findings.headline]


def usual_n(scalars: Sequence[Scalar]) -> str:
    """The count that half of the numbers were measured on, in words; empty where there is none."""
    text, n = Counter(s.n_text for s in scalars).most_common(1)[0] if scalars else ("", 0)
    return text if 2 * n >= len(scalars) else ""


def corrected(s: Scalar) -> str:
    over = f", corrected over {s.p_over}" if s.p_over else ""
    return "" if s.p is None else p_equals(s.p, s.is_p_least) + over


def bibtex(record: RunRecord) -> str:
    """A BibTeX entry whose note identifies this run: weights, n, nulls and interval methods."""
    found = _headline(record)
    nulls = dict.fromkeys(s.null.name for s in found if s.null)
    intervals = dict.fromkeys(s.interval_method for s in found if s.interval)
    counts = dict.fromkeys(s.counted_text for s in found if s.n is not None)
    if is_study(record):
        note = [f"Study {model_name(record)}"]
    else:
        note = [f"Model {model_name(record)}", f"revision {record.model.get('revision') or 'not given'}"]
        note.append(f"weights {record.model.get('fingerprint') or 'unknown'}")
    note += [f"n = {', '.join(counts)}"] if counts else []
    note += [f"intervals: {' / '.join(intervals)}"] if intervals else []
    note += [f"nulls: {' / '.join(nulls)}"] if nulls else []
    note.append(f"specification {record.spec_hash}")
    return software_entry(record.spec_hash[:8], record.environment, record.created, note)


def software_entry(key: str, environment: Mapping[str, Any], created: str, note: Sequence[str]) -> str:
    """A BibTeX entry for the version of interp in `environment`, with this note."""
    entry = {
        "title": "{interp}: a calibrated instrument for the geometry of uncertainty inside language models",
        "author": "{The interp authors}",
        "version": tex(version(environment)),
        "year": tex(created[:4]),
        "note": tex("; ".join(note)),
    }
    lines = "".join(f"  {name:<8}= {{{value}}},\n" for name, value in entry.items())
    return f"@software{{interp-{re.sub('[^0-9A-Za-z-]', '', key)},\n{lines}}}\n"


def tool(environment: Mapping[str, Any]) -> str:
    """`interp` with its version and the revision of its code."""
    code = environment.get("code") or {}
    revision = f", revision {str(code['revision'])[:12]}" if code.get("revision") else ""
    return f"interp {version(environment)}{revision}{' with local changes' if code.get('dirty') else ''}"


def version(environment: Mapping[str, Any]) -> str:
    return str(environment.get("packages", {}).get("interp") or "of unknown version")


_TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "\n": " "}
    | {"{": r"\textbraceleft{}", "}": r"\textbraceright{}"}  # BibTeX counts braces, with a backslash before them or not
)


def tex(text: str) -> str:
    """A text with the special characters of TeX escaped."""
    return printable(text).translate(_TEX)


def listed(names: list[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def _count(n: int) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{short(n / size)}{letter}"
    return str(n)
