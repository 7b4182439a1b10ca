"""Writes `tracr.npz`: what Tracr itself computes on drawn inputs. Run where Tracr is; see `compiling.py`.

PYTHONPATH=wind_tunnels/programs python tests/wind_tunnels/programs/make_reference.py
"""

import itertools
import json
from pathlib import Path

import compiling as ours
import numpy as np
from tracr.compiler import compiling, rasp_to_graph
from tracr.rasp import causal_eval, rasp

found = {}
for name, (make, vocabulary) in ours.PROGRAMS.items():
    rasp.RASPExpr._ids = itertools.count(1)
    program = make()
    compiled = compiling.compile_rasp_to_model(program, vocabulary, ours.LENGTH, causal=True)
    words = sorted(vocabulary, key=str)
    if name == "chain":  # Tracr's interpreter takes no step from a position that has none
        drawn = [[0, 1, 2, 3, 0, 2, 1, 3], [0, 0, 1, 2, 3, 3, 2, 1], [0, 1, 0, 1, 3, 2, 0, 3]]
    else:
        rng = np.random.default_rng(7)
        drawn = [[words[i] for i in rng.integers(0, len(words), ours.LENGTH)] for _ in range(3)]
    outputs = [compiled.apply(["compiler_bos", *row]) for row in drawn]
    found[f"{name}/residuals"] = np.stack([[o.input_embeddings[0], *(r[0] for r in o.residuals)] for o in outputs])
    graph = rasp_to_graph.extract_rasp_graph(program).graph.nodes(data=True)
    answers = [
        {n["EXPR"].label: causal_eval.evaluate(n["EXPR"], row) for _, n in graph if isinstance(n["EXPR"], rasp.SOp)}
        for row in drawn
    ]
    found[f"{name}/inputs"] = json.dumps(drawn)
    found[f"{name}/variables"] = json.dumps(answers)
np.savez_compressed(Path(__file__).with_name("tracr.npz"), **{k: np.asarray(v) for k, v in found.items()})
