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
    """Measure a probe's false-positive rates, power and interval coverage in simulations.

    The simulations are those that the probe's package registers under `interp.simulations`. Other probes are tested on
    simulated texts with tokens, lengths and classes, heavy tails and domains of unequal size.

    Args:
        probe: A name, `module:Class`, or a probe object.
        settings: Fields of the probe.
        scale: `smoke` makes about 90 simulations (seconds), `default` 90 of each kind (minutes), `full` 230 of each
            kind.
        seed: Seed of the simulations.
        out: Folder for the record; nothing is written if None.
        resume: Only resume an interrupted certificate. The same call without it resumes too, or begins.
        quiet: Whether to print no progress.

    Returns:
        The record of the certificate.

    Raises:
        UsageError: The probe cannot be tested, or with `resume` there is nothing to resume.

    Examples:
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
