"""Compiles the shipped programs with Tracr, as a script that imports neither torch nor the rest of the package.

    python compiling.py FOLDER [NAME ...]

Each program becomes a folder with `model.safetensors`, `config.json` and the card, `program.json`, whose tables give
exact answers. Programs have a causal mask; position 0 holds `compiler_bos`. Answers are tokens of their own, after
those of the input. The logit of a categorical answer is SHARPNESS times its direction; of a number x it falls with (x −
answer)², by SHARPNESS at the distance of the next answer.

Source: Lindner et al. 2023 (arXiv 2301.05062); the programs of `TRACR` are from the test cases of its package.
"""

import inspect
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx
import numpy as np
from safetensors.numpy import save_file
from tracr.compiler import basis_inference, compiling, lib, nodes, rasp_to_graph  # pyrefly: ignore[missing-import]
from tracr.rasp import rasp  # pyrefly: ignore[missing-import]

SHARPNESS = 20.0
LENGTH = 8
tokens, indices = rasp.tokens, rasp.indices


def evidence() -> rasp.SOp:
    """Counting evidence: observations of h less those of t so far, the log odds of two mirrored coins."""
    heads = lib.make_count(tokens, "h").named("heads")
    tails = lib.make_count(tokens, "t").named("tails")
    return rasp.SequenceMap(lambda h, t: h - t, heads, tails).named("evidence")


def elimination() -> rasp.SOp:
    """Elimination: which of the hypotheses a, b, c are left, each token but `-` excluding one (a running set)."""
    left = None
    for name in "abc":
        excluded = rasp.numerical(lib.make_frac_prevs(tokens == name)).named(f"share_{name}")
        kept = rasp.Map(lambda share, name=name: name if share == 0 else "", excluded).named(f"kept_{name}")
        left = kept if left is None else rasp.SequenceMap(lambda x, y: x + y, left, kept).named(f"left_{name}")
    assert left is not None
    return rasp.Map(lambda names: names or "none", left).named("left")


def lookup() -> rasp.SOp:
    """Lookup by content: of the pairs so far (a0, a1, b0, b1) with this token's key, the share with value 1."""
    key = rasp.Map(lambda token: token[0], tokens).named("key")
    stored = rasp.Map(lambda token: token[0] if len(token) == 2 else "no pair", tokens).named("stored_key")
    value = rasp.numerical(rasp.Map(lambda token: int(token[1:] == "1"), tokens)).named("value")
    same = rasp.Select(stored, key, rasp.Comparison.EQ).named("same_key")
    return rasp.numerical(rasp.Aggregate(same, value, default=0)).named("lookup")


def chain() -> rasp.SOp:
    """A chain of two steps: a token points at a position, the token there at the next one, where the answer stands."""
    first = rasp.Aggregate(rasp.Select(indices, tokens, rasp.Comparison.EQ), tokens).named("first_step")
    return rasp.Aggregate(rasp.Select(indices, first, rasp.Comparison.EQ), tokens).named("second_step")


TRACR: Mapping[str, tuple[Callable[[], rasp.SOp], set[Any]]] = {
    "frac_prevs": (lambda: lib.make_frac_prevs(tokens == "l"), set("helo")),
    "frac_prevs_open": (lambda: lib.make_frac_prevs(tokens == "("), set("abc()")),
    "frac_prevs_close": (lambda: lib.make_frac_prevs(tokens == ")"), set("abc()")),
    "shift_by_one": (lambda: lib.shift_by(1, tokens), set("abcd")),
    "shift_by_two": (lambda: lib.shift_by(2, tokens), set("abcd")),
    "detect_pattern_a": (lambda: lib.detect_pattern(tokens, "a"), set("abcd")),
    "detect_pattern_ab": (lambda: lib.detect_pattern(tokens, "ab"), set("ab")),
    "detect_pattern_abc": (lambda: lib.detect_pattern(tokens, "abc"), set("abc")),
    "selector_width": (lambda: rasp.SelectorWidth(rasp.Select(tokens, tokens, rasp.Comparison.TRUE)), set("abcd")),
    "hist": (lib.make_hist, set("abcd")),
    "count": (lambda: lib.make_count(tokens, "a"), set("abc")),
    "pair_balance": (lambda: lib.make_pair_balance(tokens, "(", ")"), set("abc()")),
}
OURS: Mapping[str, tuple[Callable[[], rasp.SOp], set[Any]]] = {
    "evidence": (evidence, set("ht-")),
    "elimination": (elimination, set("abc-")),
    "lookup": (lookup, {"a0", "a1", "b0", "b1", "a", "b"}),
    "chain": (chain, {0, 1, 2, 3}),
}
PROGRAMS = {**TRACR, **OURS}
FRACTIONS = sorted({i / j for j in range(1, LENGTH + 1) for i in range(j + 1)})
"""Possible means of 0s and 1s over at most LENGTH positions."""


def write_program(name: str, folder: Path) -> None:
    """Compile one program into a folder."""
    make, vocabulary = PROGRAMS[name]
    rasp.RASPExpr._ids = itertools.count(1)  # number the variables of each program from 1
    program = make()
    compiled = compiling.compile_rasp_to_model(program, vocabulary, LENGTH, causal=True)
    assert compiled.input_encoder is not None
    words = sorted(compiled.input_encoder.encoding_map, key=compiled.input_encoder.encoding_map.__getitem__)
    graph = rasp_to_graph.extract_rasp_graph(program)
    basis_inference.infer_bases(graph.graph, graph.sink, vocabulary, LENGTH)
    variables = _variables(graph.graph, program.label)
    labels, size = compiled.residual_labels, compiled.model_config
    answers = variables[program.label]["values"]
    weights, bias = _weights(compiled), np.full(len(words) + len(answers), -SHARPNESS)
    head = np.zeros((len(bias), len(labels)))
    for row, answer in enumerate(answers, len(words)):
        if variables[program.label]["type"] == "categorical":
            head[row, labels.index(f"{program.label}:{answer}")], bias[row] = SHARPNESS, 0.0
        else:
            scale = SHARPNESS / np.diff(answers).min() ** 2
            head[row, labels.index(program.label)], bias[row] = 2 * scale * answer, -scale * answer**2
    weights["lm_head.weight"], weights["lm_head.bias"] = head, bias
    weights["embed_tokens.weight"] = np.vstack([weights["embed_tokens.weight"], np.zeros((len(answers), len(labels)))])
    config = {
        "model_type": "program", "architectures": ["ProgramForCausalLM"], "vocab_size": len(bias),
        "hidden_size": len(labels), "num_hidden_layers": size.num_layers, "num_attention_heads": size.num_heads,
        "head_dim": size.key_size, "intermediate_size": size.mlp_hidden_size, "max_position_embeddings": LENGTH + 1,
    }  # fmt: skip
    card = {
        "program": name, "format": 1, "source": inspect.getsource(make).strip(), "origin": "tracr" if name in TRACR else
        "interp", "attention": "causal", "length": LENGTH, "tokens": words, "output": program.label,
        "variables": variables, "labels": labels,
        "directions": {v: [i for i, label in enumerate(labels) if label.split(":")[0] == v] for v in variables},
        "parts": _parts(weights, labels, size), "noise": {},
    }  # fmt: skip
    card["idle_heads"] = [[p["layer"], p["head"]] for p in card["parts"] if "head" in p and not p["writes"]]
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: np.ascontiguousarray(value, dtype=np.float32) for key, value in sorted(weights.items())}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    for file, content in (("config.json", config), ("program.json", card)):
        (folder / file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _weights(compiled: Any) -> dict[str, np.ndarray]:
    """Tracr's parameters under the names of `ProgramForCausalLM`, transposed as linear layers store them."""
    names = {"query": "attn.q_proj", "key": "attn.k_proj", "value": "attn.v_proj", "linear": "attn.o_proj",
             "linear_1": "mlp.up", "linear_2": "mlp.down"}  # fmt: skip
    found = {
        "embed_tokens.weight": np.asarray(compiled.params["token_embed"]["embeddings"]),
        "embed_positions.weight": np.asarray(compiled.params["pos_embed"]["embeddings"]),
    }
    for path, parameters in compiled.params.items():
        if path.startswith("transformer/layer_"):
            layer, part = path.split("/")[1].removeprefix("layer_"), names[path.split("/")[-1]]
            found[f"layers.{layer}.{part}.weight"] = np.asarray(parameters["w"]).T
            found[f"layers.{layer}.{part}.bias"] = np.asarray(parameters["b"])
    return found


def _parts(weights: Mapping[str, np.ndarray], labels: list[str], size: Any) -> list[dict[str, Any]]:
    """The labels that every head and feed-forward reads and writes."""

    def names(directions: Any) -> list[str]:
        return [labels[i] for i in np.flatnonzero(directions)]

    found: list[dict[str, Any]] = []
    for layer in range(size.num_layers):
        q, k, v, o = (weights[f"layers.{layer}.attn.{p}_proj.weight"] for p in "qkvo")
        for head in range(size.num_heads):
            mine = slice(head * size.key_size, (head + 1) * size.key_size)
            moved = o[:, mine] @ v[mine]
            reads = {"queries": q[mine].any(0), "keys": k[mine].any(0), "values": moved.any(0)}
            found.append({"layer": layer, "head": head, "reads": {key: names(d) for key, d in reads.items()},
                          "writes": names(moved.any(1))})  # fmt: skip
        up, down = (weights[f"layers.{layer}.mlp.{p}.weight"] for p in ("up", "down"))
        found.append({"layer": layer, "mlp": True, "reads": {"input": names(up.any(0))}, "writes": names(down.any(1))})
    return found


def _variables(graph: networkx.DiGraph, output: str) -> dict[str, dict[str, Any]]:
    """Every variable and selector in order of computation, with its rule and possible values."""
    found: dict[str, dict[str, Any]] = {}
    for node in networkx.topological_sort(graph):
        expression = graph.nodes[node][nodes.EXPR]
        entry = _entry(expression, found)
        if isinstance(expression, rasp.SOp):
            kind = "categorical" if rasp.is_categorical(expression) else "numerical"
            values = entry.pop("values", None)
            known = graph.nodes[node][nodes.VALUE_SET] if values is None else values
            entry |= {"type": kind, "values": sorted(known, key=lambda v: (isinstance(v, str), v))}
        found[expression.label] = entry
    assert output in found
    return found


def _entry(e: Any, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if isinstance(e, rasp.TokensType):
        return {"rule": "tokens"}
    if isinstance(e, rasp.IndicesType):
        return {"rule": "indices"}
    if isinstance(e, rasp.Map):
        table = [[x, e.f(x)] for x in known[e.inner.label]["values"]]
        return {"rule": "map", "of": [e.inner.label], "table": table, "values": {y for _, y in table}}
    if isinstance(e, rasp.LinearSequenceMap):
        pairs = itertools.product(*(known[s.label]["values"] for s in (e.fst, e.snd)))
        values = _apart([e.fst_fac * x + e.snd_fac * y for x, y in pairs])
        return {"rule": "linear", "of": [e.fst.label, e.snd.label], "factors": [e.fst_fac, e.snd_fac], "values": values}
    if isinstance(e, rasp.SequenceMap):
        pairs = itertools.product(*(known[s.label]["values"] for s in (e.fst, e.snd)))
        table = [[x, y, e.f(x, y)] for x, y in pairs]
        return {"rule": "map", "of": [e.fst.label, e.snd.label], "table": table, "values": {z for *_, z in table}}
    if isinstance(e, rasp.Select):
        pairs = itertools.product(*(known[s.label]["values"] for s in (e.keys, e.queries)))
        chosen = [[k, q] for k, q in pairs if e.predicate(k, q)]
        return {"rule": "select", "of": [e.keys.label, e.queries.label], "table": chosen}
    if isinstance(e, rasp.SelectorWidth):
        return {"rule": "width", "of": [e.selector.label], "values": range(LENGTH + 1)}
    if isinstance(e, rasp.Aggregate):
        values = FRACTIONS if rasp.is_numerical(e) else known[e.sop.label]["values"]
        return {"rule": "mean" if rasp.is_numerical(e) else "pick", "of": [e.selector.label, e.sop.label],
                "default": e.default, "values": values}  # fmt: skip
    raise NotImplementedError(f"{type(e).__name__} has no entry in the card")


def _apart(values: list[float]) -> list[float]:
    """The distinct values, up to rounding."""
    ordered = np.unique(values)
    return ordered[np.r_[True, np.diff(ordered) > 1e-9]].tolist()


if __name__ == "__main__":
    for wanted in sys.argv[2:] or PROGRAMS:
        write_program(wanted, Path(sys.argv[1]) / wanted)
