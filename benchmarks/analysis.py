"""Seconds that each observational probe analyses a capture of Pythia-410M's shape: `python -m benchmarks.analysis`."""

import json
import time

from interp.options import RunOptions
from interp.prompting.pools import draw
from interp.running.choose_probes import choose_probes
from interp.system.threads import one_thread
from interp.testing import Shape, synthetic_capture

PYTHIA = Shape(n_prompts=1000, n_layers=24, n_heads=16, n_kv_heads=16, d_head=64, d_model=1024, vocab_size=1000)
"""The vocabulary is reduced: beyond the size that is kept whole, it affects no probe."""


def probe_seconds(shape: Shape = PYTHIA) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of every probe's `analyse`, with the prompts and threads of a run."""
    found = {}
    for probe in choose_probes(["all"]).probes:
        capture, _ = draw(synthetic_capture(probe.needs, shape), RunOptions.per_quintile)
        with one_thread():
            began, spent = time.perf_counter(), time.process_time()
            probe.analyse(capture, {})
            found[probe.name] = (time.perf_counter() - began, time.process_time() - spent)
    return found


def main(shape: Shape = PYTHIA) -> None:
    print(json.dumps({"probes": probe_seconds(shape)}))


if __name__ == "__main__":
    main()
