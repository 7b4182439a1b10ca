"""Probes on a capture of `interp.collect`, of a file, or of another tool."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from interp.capture import Capture
from interp.errors import UsageError
from interp.findings import Findings
from interp.probe import Probe
from interp.prompting.clusters import with_targets
from interp.prompting.pools import described_set, draw, refuse_few, refuse_prompts
from interp.records.record import RunRecord, written
from interp.running.choose_probes import analysed, choose_probes, reads_attention_alone
from interp.system.digest import digest_of


def analyse(
    capture: Capture,
    probes: str | Probe | Sequence[str | Probe],
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    per_quintile: int | None = 15,
    out: str | Path | None = None,
    report: bool = True,
) -> RunRecord:
    """Run probes on a capture, without the model.

    Args:
        capture: What `interp.collect`, `interp.open_capture` or `interp.capture_from_arrays` returned.
        probes: Names of probes, probe objects, or a group (`all` runs those that the capture serves).
        settings: Fields of the probes by probe name, as in `interp.run`.
        per_quintile: Prompts drawn from each fifth of next-token entropy; 0 or None takes all.
        out: Folder that receives the folder of the record; nothing is written if None.
        report: Whether a page is written beside the record.

    Returns:
        The record, which names the tool that read the model and says whether its activations were checked.

    Raises:
        UsageError: A probe needs more than the capture holds, or a name or field is unknown.
        PromptError: There are too few prompts for a probe.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> probe = interp.registry.load_entry("probe", "attention_entropy")()
        >>> capture = interp.collect(model, interp.sampled_prompts(model.task, 20), probe.needs)
        >>> list(interp.analyse(capture, probe).findings)
        ['attention_entropy']
    """
    what = f"probes on the capture of {capture.model.name}"
    if capture.layers is not None:
        raise UsageError(asked=what, found="it has only some of the layers", fix="Capture all layers.")
    if "next_entropy_bits" not in capture.rows:
        fix = "Give `interp.capture_from_arrays` the logits, or next_entropy_bits."
        raise UsageError(asked=what, found="its rows have no next_entropy_bits", fix=fix)
    chosen = choose_probes(probes, settings)
    began = time.monotonic()
    per_quintile = per_quintile or None
    base, drawn = draw(capture, per_quintile)
    findings: dict[str, Findings] = {}
    for probe in chosen.served(chosen.probes, partial(_refuse, capture)):
        with chosen.leaving_out(probe):
            findings[probe.name] = analysed(probe, base, {})
    if not findings:
        raise chosen.refused[chosen.probes[0].name]
    pool, provenance = capture.prompts, dict(capture.provenance)
    checks = provenance.pop("selfcheck", "not known")
    parameters = {name: found.parameters for name, found in findings.items()}
    targets = [str(of_probe.get("target")) for of_probe in parameters.values()]
    spec = {
        "capture_of": capture.model.name, "probes": parameters, "prompts": pool.name, "prompts_hash": pool.content_hash,
        "per_quintile": per_quintile, "seed": capture.seed, "edits": provenance.pop("edits", []), **provenance,
    }  # fmt: skip
    notes = {"notes": list(chosen.notes)} if chosen.refused else {}
    is_checked = isinstance(checks, Sequence) and not isinstance(checks, str)
    record = RunRecord(
        spec=spec,
        spec_hash=digest_of(spec),
        model=asdict(capture.model) | ({} if is_checked else {"selfcheck": str(checks)}),
        prompts=described_set(pool if pool.clusters is None else with_targets(pool, targets), drawn) | notes,
        selfcheck=tuple(checks) if is_checked else (),
        timings={"analyses": round(time.monotonic() - began, 4)},
        findings=findings,
    )  # fmt: skip
    if out is not None:
        record = written(record, Path(out), capture.model.name)
        if report:
            record.show()
    return record


def _refuse(capture: Capture, probe: Probe) -> None:
    """Raise `UsageError` for a probe that needs more than the capture holds, or cannot analyse its prompts."""
    there = ", ".join(dict.fromkeys(need.site for need in capture.arrays))
    missing = ", ".join(dict.fromkeys(need.site for need in probe.needs if need not in capture.arrays))
    is_of_attention = any(need.described.is_of_attention for need in probe.needs)
    found = fix = ""
    if probe.edits_model or probe.follows_checkpoints:
        found, fix = "it makes passes of its own, and a capture is no model", "Run it on the model: interp.run."
    elif missing:
        found = f"it needs {missing} in a way that was not captured; there are {there}"
        fix = f"Capture every need in interp.registry.load_entry('probe', {probe.name!r})().needs."
    elif capture.model.attention_layers is not None and is_of_attention and not reads_attention_alone(probe):
        found = "it reads attention beside other sites, and some layers have no attention"
        fix = "Use probes of attention alone, or of the residual stream."
    if found:
        asked = f"the probe {probe.name} on the capture of {capture.model.name}"
        raise UsageError(asked=asked, found=found, fix=fix)
    refuse_prompts(capture.prompts, probe)
    refuse_few(capture.prompts, probe)
    probe.refuse_fields(capture.model.n_layers)
