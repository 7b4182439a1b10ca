"""`interp.certify`: the certificate of a probe, a record and a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.probe import Probe
from interp.records.record import RunRecord
from interp.registry import entries
from interp.running.study import run_study
from interp.settings import write_value

from .study import Certificate, Scale


def certify(
    probe: str | Probe,
    *,
    settings: Mapping[str, Any] | None = None,
    scale: Scale = "default",
    seed: int = 0,
    out: str | Path | None = "runs",
    resume: bool = False,
    quiet: bool = True,
) -> RunRecord:
    """Error rates of a probe's headline numbers where nothing is to be found, power where something is, and coverage.

    It is tried on simulated worlds: those that its package registers under `interp.worlds`, else worlds like texts
    that hold tokens, lengths and classes, heavy tails, unequal domains. `probe` is a name, `module:Class`, or a probe;
    `settings` are fields of it. `scale` `smoke` tries some 90 worlds (seconds), `default` 90 of each kind (minutes),
    `full` 230; another `seed` draws other worlds. The same call resumes an interrupted one; with `resume` it does
    nothing else.

    >>> record = interp.certify("orthogonality", scale="smoke", out=None)  # doctest: +SKIP
    """
    given = dict(settings or {})
    if isinstance(probe, Probe):
        defaults = type(probe)().parameters()
        given = {k: v for k, v in probe.parameters().items() if v != defaults[k]} | given
        probe = _name_of(probe)
    words = tuple(f"{field}={write_value(value)}" for field, value in given.items())
    return run_study(Certificate(probe, words, scale, seed), out=out, resume=resume, quiet=quiet)


def _name_of(probe: Probe) -> str:
    """The name that it is registered by, else where its class lies."""
    where = f"{type(probe).__module__}:{type(probe).__qualname__}"
    registered = entries("probe").get(probe.name)
    return probe.name if registered is not None and registered.value == where else where
