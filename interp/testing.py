"""For tests of your own probes: captures with a planted effect, and a check that every probe has to pass.

    capture = synthetic_capture(probe.needs, Shape(n_prompts=75))                          # noise
    capture = synthetic_capture(probe.needs, Shape(n_prompts=75), planted={"v": values})   # yours
    check_probe(MyProbe())

Numpy only: no model, no torch.
"""

import copy
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture, ModelInfo
from interp.findings import Findings
from interp.information import BITS_PER_NAT, log_softmax
from interp.need import Need
from interp.probe import Figure, Probe
from interp.prompt import Prompt, PromptSet
from interp.reductions import Reduction
from interp.sites import Site
from interp.statistics.possible import impossible
from interp.statistics.units import clusters_of
from interp.table import LABEL, ROW_UNITS, Table

_DATACLASS_PARAMETERS = "__dataclass_params__"


@dataclass(frozen=True)
class Shape:
    """How large a synthetic capture is. With `n_scored` above 1 its prompts are sequences, as in a wind tunnel."""

    n_prompts: int = 100
    n_scored: int = 1
    n_layers: int = 3
    n_heads: int = 4
    n_kv_heads: int = 2
    d_head: int = 8
    d_model: int = 32
    vocab_size: int = 50
    n_outcomes: int = 2
    n_keys: int = 0
    """The width of whole attention rows."""
    n_experts: int = 4

    def axis(self, name: str) -> int:
        """The size of an axis of a site; `KeyError` for another name."""
        sizes = {
            "head": self.n_heads, "kv_head": self.n_kv_heads, "d_head": self.d_head, "d_model": self.d_model,
            "other_d_model": self.d_model, "vocab": self.vocab_size, "key": self.n_keys, "outcome": self.n_outcomes,
            "expert": self.n_experts,
        }  # fmt: skip
        return sizes[name]

    def leading(self, site: Site) -> tuple[int, ...]:
        """The size of the axis of layers or depths, if the site has one."""
        counts = {"layer": (self.n_layers,), "depth": (self.n_layers + 1,), "once": ()}
        return counts[site.layers]


def synthetic_capture(
    needs: Sequence[Need],
    shape: Shape = Shape(),
    *,
    planted: Mapping[str, np.ndarray] | None = None,
    columns: Mapping[str, np.ndarray] | None = None,
    posterior: Float[np.ndarray, "row outcome"] | None = None,
    outcome_ids: Int[np.ndarray, "*prompt outcome"] | None = None,
    belief: Float[np.ndarray, "row component"] | None = None,
    seed: int = 0,
) -> Capture:
    """A capture of noise with these needs, except where an effect is planted.

    `planted` maps a site to its rows `[layer, row, ...]` at the scored positions; another shape is a `ValueError`.
    `columns` sets columns `[row]` of the scored rows (`next_entropy_bits`, `domain`, `drawn` ...), in bits if the name
    ends in `_bits`. Rows run prompt by prompt; every prompt is drawn unless `drawn` says otherwise. Everything else is
    independent noise: Gaussian activations and weights, entropies and fractions in their range.

    `posterior` `[row, outcome]` is exact, over the token ids `outcome_ids` (`[outcome]` or `[prompt, outcome]`; default
    0, 1, 2 ...), and `belief` `[row, component]` the exact belief over a latent. Without a posterior, a need that reads
    the model at its outcomes gets a random one over `shape.n_outcomes`.
    """
    rng = np.random.default_rng(seed)
    if posterior is None and any("outcome" in need.described.axes for need in needs):
        n_rows = shape.n_prompts * shape.n_scored
        posterior = np.random.default_rng([seed, 1]).dirichlet(np.ones(shape.n_outcomes), n_rows)
    if posterior is not None:
        shape = replace(shape, n_outcomes=posterior.shape[1])
        outcome_ids = np.arange(shape.n_outcomes) if outcome_ids is None else outcome_ids
    scored = _scored_table(shape, columns or {}, rng)
    tables = {"scored": scored} | {n.at: _other_table(scored, shape, n.at) for n in needs if n.at != "scored"}
    clusters = clusters_of(scored)[np.unique(scored["prompt"], return_index=True)[1]]
    arrays = {need: _reduced(need, tables[need.at], clusters, shape, planted or {}, rng) for need in needs}
    prompts = replace(_prompts(scored, shape), posterior=posterior, outcome_ids=outcome_ids, belief=belief)
    return Capture(_model(shape), prompts, tables, arrays, seed=seed, posterior=posterior, belief=belief)


def _scored_table(shape: Shape, given: Mapping[str, np.ndarray], rng: np.random.Generator) -> Table:
    n = shape.n_prompts * shape.n_scored
    shortest = 2 * shape.n_scored
    length = np.repeat(rng.integers(shortest, shortest + 20, shape.n_prompts), shape.n_scored)
    position = np.tile(2 * np.arange(shape.n_scored), shape.n_prompts) if shape.n_scored > 1 else length - 1
    columns: dict[str, np.ndarray] = {
        "prompt": np.repeat(np.arange(shape.n_prompts), shape.n_scored),
        "position": position,
        "length": length,
        "token": rng.integers(0, shape.vocab_size, n),
        "next_entropy_bits": rng.uniform(0.0, math.log2(shape.vocab_size), n),
        "drawn": np.ones(n, dtype=bool),
        "stratum": np.zeros(n, dtype=np.int64),
    }
    columns |= {name: np.asarray(column) for name, column in given.items()}
    return Table(columns, {name: ROW_UNITS.get(name) or _unit_of(name, column) for name, column in columns.items()})


def _unit_of(name: str, column: np.ndarray) -> str:
    if name.endswith("_bits"):
        return "bits"
    return LABEL if column.dtype.kind in "OUSb" else "1"


def _other_table(scored: Table, shape: Shape, at: str) -> Table:
    """One row per prompt at `last`, `before_last` (of a text) and a column's positions; one per token at `all`."""
    first = np.flatnonzero(np.diff(scored["prompt"], prepend=-1))
    length = scored["length"][first]
    if at in ("all", "followed"):
        counts = length - (at == "followed")
        prompt = np.repeat(np.arange(shape.n_prompts), counts)
        position = np.concatenate([np.arange(k) for k in counts])
    elif at == "before_last" and shape.n_scored == 1:
        prompt, position = np.arange(shape.n_prompts), length - 2
    elif at in ("tunnel", "before_last"):
        prompt = position = np.zeros(0, dtype=np.int64)
    else:
        prompt = np.arange(shape.n_prompts)
        position = length - 1 if at == "last" else np.minimum(scored[at][first], length - 1)
    columns = {"prompt": prompt, "position": position, "length": length[prompt], "token": prompt * 0}
    return Table(columns, {name: ROW_UNITS[name] for name in columns})


def _reduced(
    need: Need, rows: Table, clusters: np.ndarray, shape: Shape, planted: Mapping[str, np.ndarray],
    rng: np.random.Generator,
) -> Mapping[str, np.ndarray]:  # fmt: skip
    site = need.described
    sizes = tuple(shape.axis(axis) for axis in site.axes)
    leading = shape.leading(site)
    n_rows = () if site.source == "weights" else (rows.n_rows,)
    if site.name in planted and need.at == "scored":
        values = np.asarray(planted[site.name])
        if values.shape != (*leading, *n_rows, *sizes):
            raise ValueError(f"planted {site.name} has shape {values.shape}, not {(*leading, *n_rows, *sizes)}")
    else:
        values = _noise(site, (*leading, *n_rows, *sizes), rng)
    if site.source == "weights":
        return {"rows": values}
    if not leading:
        return _reduce(need.reduction, values, rows["prompt"], clusters)
    reduced = [_reduce(need.reduction, layer, rows["prompt"], clusters) for layer in values]
    return {name: np.stack([f[name] for f in reduced]) for name in reduced[0]}


def _reduce(how: Reduction, values: np.ndarray, prompts: np.ndarray, clusters: np.ndarray) -> Mapping[str, np.ndarray]:
    state = how.starter(clusters)()
    state.add(values, prompts)
    return state.result()


def _noise(site: Site, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if site.name == "outcome_log_prob":  # one more outcome stands for the rest of the vocabulary
        whole = log_softmax(rng.standard_normal((*size[:-1], size[-1] + 1)))
        return (whole[..., :-1] * BITS_PER_NAT).astype(np.float32)
    if site.name == "next_log_prob":
        return (log_softmax(rng.standard_normal(size)) * BITS_PER_NAT).astype(np.float32)
    if site.unit in ("fraction", "1"):
        return rng.uniform(0.0, 1.0, size).astype(np.float32)
    if site.unit == "bits":
        return rng.uniform(0.0, 3.0, size).astype(np.float32)
    return rng.standard_normal(size).astype(np.float32)


def _model(shape: Shape) -> ModelInfo:
    return ModelInfo(
        name="synthetic", source="noise", family="none", n_layers=shape.n_layers, n_heads=shape.n_heads,
        n_kv_heads=shape.n_kv_heads, d_head=shape.d_head, d_model=shape.d_model, vocab_size=shape.vocab_size,
        n_parameters=0, dtype="float32", device="none", attention_kernel="none", n_experts=shape.n_experts,
    )  # fmt: skip


def _prompts(scored: Table, shape: Shape) -> PromptSet:
    first = np.flatnonzero(np.diff(scored["prompt"], prepend=-1))
    if shape.n_scored > 1:
        prompts = [
            Prompt(token_ids=tuple([0] * int(scored["length"][i])), scored=tuple(range(0, 2 * shape.n_scored, 2)))
            for i in first
        ]
        return PromptSet("synthetic", prompts, source="noise", unit="sequence")
    prompts = [Prompt(text=f"the {i}th text of a synthetic set") for i in range(shape.n_prompts)]
    return PromptSet("synthetic", prompts, source="noise")


def check_probe(probe: Probe, capture: Capture | None = None) -> Findings:
    """Check what is asked of every probe; returns its findings on noise (or on `capture`), raises `AssertionError`.

    The probe is a frozen dataclass whose fields have defaults and whose constructor only stores them. Its needs exist;
    its analysis is pure. Scalars have unit and meaning, and interval and null or the reason why not. Numbers are
    possible (`0 < p <= 1`, values inside their intervals, nulls inside their bands), in tables too. It has a headline,
    draws figures from the findings alone, copes with six prompts and, if it follows checkpoints, with equal ones.
    """
    _check_class(probe)
    _check_needs(probe)
    capture = capture or synthetic_capture(probe.needs, Shape(n_prompts=60))
    findings = _check_pure(probe, capture)
    _check_findings(probe, findings)
    tiny = synthetic_capture(probe.needs, Shape(n_prompts=6))
    _check_findings(probe, probe.analyse(tiny, {}))
    if probe.follows_checkpoints:
        for still in (capture, tiny):
            steps = {step: probe.read_checkpoint(still, still) for step in ("0", "1", "10")}
            _check_findings(probe, probe.analyse(still, steps))
    return findings


def _check_class(probe: Probe) -> None:
    cls = type(probe)
    assert is_dataclass(cls), f"{cls.__name__} is no dataclass"
    assert getattr(cls, _DATACLASS_PARAMETERS).frozen, f"{cls.__name__} is not frozen"
    is_generated = cls.__init__.__code__.co_filename != inspect.getsourcefile(cls)
    assert is_generated, f"{cls.__name__} writes its own constructor; fields are its parameters"
    assert not hasattr(cls, "__post_init__"), f"{cls.__name__} does more than store: check the fields in `analyse`"
    for name in ("name", "question"):
        assert isinstance(getattr(cls, name, None), str), f"{cls.__name__} has no {name}"
    fresh = cls()
    assert fresh == replace(fresh), f"{cls.__name__} changes when it is copied"
    assert fresh.parameters().keys() == {f.name for f in fields(cls)}, f"{cls.__name__} hides a parameter"
    for name, value in probe.parameters().items():
        assert getattr(probe, name) == value, f"{cls.__name__}.{name} is not what was stored"


def _check_needs(probe: Probe) -> None:
    assert probe.needs, f"{probe.name} needs nothing"
    assert all(isinstance(need, Need) for need in probe.needs), f"{probe.name}: every need is a Need"
    assert len(set(probe.needs)) == len(probe.needs), f"{probe.name} asks for the same thing twice"
    assert probe.needs == type(probe)(**probe.parameters()).needs, f"{probe.name}: needs depend on more than fields"


def _check_pure(probe: Probe, capture: Capture) -> Findings:
    before = copy.deepcopy(capture)
    state = _global_state()
    first = probe.analyse(capture, {})
    second = probe.analyse(capture, {})
    assert _global_state() == state, f"{probe.name} draws from the global generator"
    assert same_findings(first, second), f"{probe.name} gives another answer the second time"
    for (what, array), (_, was) in zip(_arrays_of(capture), _arrays_of(before), strict=True):
        assert np.array_equal(array, was), f"{probe.name} changed {what} in its input"
    return first


def _arrays_of(capture: Capture) -> Iterator[tuple[str, np.ndarray]]:
    yield from ((need.site, array) for need, reduced in capture.arrays.items() for array in reduced.values())
    yield from ((f"column {name}", x) for table in capture.tables.values() for name, x in table.columns.items())
    yield from (("the posterior", np.asarray(capture.posterior)), ("the belief", np.asarray(capture.belief)))


def _global_state() -> str:
    _, keys, *rest = np.random.get_state()  # noqa: NPY002 (to see whether somebody draws from it)
    return f"{np.asarray(keys).tolist()} {rest}"


def same_findings(a: Findings, b: Findings) -> bool:
    """Whether two findings hold the same numbers and words, NaN equal to NaN."""
    if a.tables.keys() != b.tables.keys() or a.arrays.keys() != b.arrays.keys():
        return False
    pairs = [(a.arrays[k], b.arrays[k]) for k in a.arrays]
    for name, table in a.tables.items():
        if table.units != b.tables[name].units:
            return False
        pairs += [(column, b.tables[name][k]) for k, column in table.columns.items()]
    equal = all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)
    return equal and repr(a.scalars) == repr(b.scalars) and (a.notes, a.headline) == (b.notes, b.headline)


def _check_findings(probe: Probe, findings: Findings) -> None:
    assert findings.probe == probe.name, f"findings of {findings.probe!r} from the probe {probe.name!r}"
    assert findings.headline, f"{probe.name} has no headline"
    for name, scalar in findings.scalars.items():
        assert scalar.unit, f"{probe.name}.{name} has no unit"
        assert scalar.meaning, f"{probe.name}.{name} does not say what it means"
        explained = scalar.interval_reason and scalar.null_reason
        assert explained or not math.isnan(scalar.value), f"{probe.name}.{name} is undefined and does not say why"
    faults = impossible(findings)
    assert not faults, f"{probe.name} gives what cannot be: {'; '.join(faults)}"
    for name, table in findings.tables.items():
        assert all(table.units.values()), f"{probe.name}: a column of {name} has an empty unit"
        kinds = {column: values.dtype.kind for column, values in table.columns.items()}
        assert set(kinds.values()) <= set("biufU"), f"{probe.name}: {name} has columns of odd types {kinds}"
    for name, array in findings.arrays.items():
        assert np.isfinite(array).all(), f"{probe.name}: the array {name} is not finite"
    figures = probe.figures(findings)
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names), f"{probe.name} draws two figures of one name: {names}"
    again = probe.figures(findings)
    for figure, second in zip(figures, again, strict=True):
        assert isinstance(figure, Figure), f"{probe.name}: {figure!r} is no Figure"
        assert figure.title and figure.reading, f"{probe.name}.{figure.name} does not say how to read it"
        assert figure.table is None or figure.table in findings.tables, (
            f"{probe.name}.{figure.name} names no table: {figure.table!r}"
        )
        assert figure.plot.to_json() == second.plot.to_json(), f"{probe.name}.{figure.name} is not reproducible"
