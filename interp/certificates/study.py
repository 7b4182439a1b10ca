"""The study `certificate` (`interp certify`): a probe's false-positive rate, power and coverage of intervals.

Data are simulated, of every kind that is known to break nulls; the probe also runs on models with known answers.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from interp.certificates.findings import doubtful, findings_of
from interp.certificates.simulate import planned, run_simulations
from interp.certificates.simulations import Trials, held_against, shrunk_fields, trials_of
from interp.certificates.text_simulations import any_trials
from interp.certificates.verdicts import LEAST_JUDGED
from interp.errors import UsageError
from interp.findings import Findings
from interp.probe import Probe
from interp.records.probe_code import code_hash
from interp.records.record import RunRecord
from interp.records.unfinished import Unfinished
from interp.registry import entries
from interp.running.spec import make_probe
from interp.running.study import run_study
from interp.settings import LARGEST_SEED, refuse_number, split_settings, write_value
from interp.study import Study
from interp.system.progress import Report

Scale = Literal["smoke", "default", "full"]

_N_NULL: Mapping[Scale, int] = {"smoke": LEAST_JUDGED, "default": LEAST_JUDGED, "full": 200}
_N_PLANTED = 10
"""Simulations without an effect, and of each planted size: of every kind, or at scale `smoke` of all together."""

_N_AGAIN = 3
"""The factor of fresh null simulations for a kind in which a number looks liberal."""

_SEEDS = 100_000
"""The number of simulation seeds for one seed of a certificate."""


@dataclass(frozen=True)
class Certificate(Study):
    """`probe` is a name, or `module:Class`; `settings` are field=value of it.

    `scale`: `smoke` tries some 90 simulations, `default` 90 of each kind, `full` 230. Another `seed` draws others.
    """

    probe: str = "manifold"
    settings: tuple[str, ...] = ()
    scale: Scale = "default"
    seed: int = 0

    name: ClassVar[str] = "certificate"
    question: ClassVar[str] = "How often does the probe call an effect where there is none, and where there is one?"

    @property
    def certified(self) -> Probe:
        """The probe with its settings."""
        return make_probe(self.probe, split_settings(self.settings, [self.probe])[self.probe])

    @property
    def spec(self) -> dict[str, Any]:
        """The specification, with the hash of the probe's code and all its parameters."""
        probe = self.certified
        tried_with: dict[str, list[Any]] = {}
        for kind in _trials(probe).simulations:
            for name, value in shrunk_fields(probe, kind.small).items():
                values = tried_with.setdefault(name, [])
                values += [] if value in values else [value]
        described = {
            "name": probe.name, "class": f"{type(probe).__module__}:{type(probe).__qualname__}",
            "code": code_hash(probe), "parameters": probe.parameters(), "tried_with": tried_with,
        }  # fmt: skip
        return super().spec | json.loads(json.dumps({"certified": described}))

    @property
    def command(self) -> str:
        """`interp certify`, which does the same."""
        words = ["interp", "certify", self.probe]
        words += [word for setting in self.settings for word in ("--set", setting)]
        words += ["--scale", self.scale] if self.scale != "default" else []
        return shlex.join([*words, *(["--seed", str(self.seed)] if self.seed else [])])

    def measure(self, work: Path, progress: Report) -> Findings:
        probe = self.certified
        probe.refuse_fields(None)
        trials = _trials(probe)
        n_spread = len(trials.simulations) if self.scale == "smoke" else 1
        null, of_size = (-(-n // n_spread) for n in (_N_NULL[self.scale], _N_PLANTED))
        simulations = [(kind, planned(kind, null, of_size)) for kind in trials.simulations]
        n, n_known = sum(sum(sizes.values()) for _, sizes in simulations), len(trials.known)
        unfinished, first = Unfinished(work), _SEEDS * self.seed
        spec = {"spec": self.hash}
        parts = [unfinished.part(name, spec) for name in ("simulations", "fresh simulations")]
        seen = run_simulations(probe, simulations, first, parts[0], lambda done: progress(done, n + n_known))
        doubt = doubtful(trials, seen)
        doubted = [(kind, {0: _N_AGAIN * sizes[0]}) for kind, sizes in simulations if kind.name in doubt]
        n_all = n + sum(sizes[0] for _, sizes in doubted) + n_known
        again = run_simulations(probe, doubted, first + _SEEDS // 2, parts[1], lambda done: progress(n + done, n_all))
        known = []
        for each in trials.known:
            known.append(held_against(each, probe))
            progress(n_all - n_known + len(known), n_all)
        headline = trials.simulations[0].findings(probe, first, 0.0)
        found = findings_of(self.name, trials, seen, again, headline, known)
        unfinished.remove()
        return found


def _trials(probe: Probe) -> Trials:
    """The registered trials of a probe, else those for any observational probe."""
    registered = trials_of(probe.name)
    if registered is not None:
        return registered
    wants = {
        "changes the model": probe.edits_model, "follows a training": probe.follows_checkpoints,
        "needs an exact posterior": probe.needs_posterior,
    }  # fmt: skip
    wanted = next((words for words, is_so in wants.items() if is_so), None)
    if wanted is not None:
        raise UsageError(
            asked=f"a certificate of {probe.name}",
            found=f"it {wanted}, and the simulations of texts that any probe is tried on have nothing for that",
            fix="Register simulations of its own under the entry points `interp.simulations`, as "
            "`interp.certificates.simulations` describes.",
        )
    return any_trials(probe)


def certify(
    probe: str | Probe,
    *,
    settings: Mapping[str, Any] | None = None,
    scale: Scale = "default",
    seed: int = 0,
    out: str | Path | None = "runs",
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
        out: Folder for the record. If None, only unfinished work is kept, in `runs/.partial`.
        quiet: Whether to print no progress.

    Returns:
        The record of the certificate.

    Raises:
        UsageError: The probe cannot be tested.

    Examples:
        >>> record = interp.certify("orthogonality", scale="smoke", out=None)  # doctest: +SKIP
    """
    refuse_number(f"seed = {seed}", seed, 0, LARGEST_SEED)
    given = dict(settings or {})
    if isinstance(probe, Probe):
        defaults = type(probe)().parameters()
        given = {k: v for k, v in probe.parameters().items() if v != defaults[k]} | given
        # the name that it is registered by, else where its class lies
        where, known = f"{type(probe).__module__}:{type(probe).__qualname__}", entries("probe").get(probe.name)
        probe = probe.name if known is not None and known.value == where else where
    words = tuple(f"{field}={write_value(value)}" for field, value in given.items())
    return run_study(Certificate(probe, words, scale, seed), out=out, quiet=quiet)
