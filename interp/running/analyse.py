"""Probes on a capture that is there already: one of `interp.collect`, one from a file, or one of another tool."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp.capture import Capture
from interp.errors import UsageError
from interp.probe import Probe
from interp.prompting.clusters import described, with_targets
from interp.prompting.pools import draw, refuse_without_posterior
from interp.records.record import RunRecord, written
from interp.running.choose_probes import ChosenProbe, analysed, choose_probes, reads_attention_alone
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
    chosen = _served(capture, choose_probes(probes, settings))
    mixed = [probe for probe in chosen if any(n.described.is_of_attention for n in probe.needs)]
    mixed = [probe for probe in mixed if not reads_attention_alone(probe)]
    has_gaps = capture.layers is not None or (capture.model.attention_layers is not None and bool(mixed))
    if "next_entropy_bits" not in capture.rows or has_gaps:
        raise UsageError(
            asked=f"probes on the capture of {capture.model.name}",
            found="it has only some of the layers" if has_gaps else "its rows have no next_entropy_bits",
            fix="Capture all layers; if some have no attention, use probes of the residual stream."
            if has_gaps
            else "Give `interp.capture_from_arrays` the logits, or next_entropy_bits.",
        )
    refuse_without_posterior(capture.prompts, chosen)
    for probe in chosen:
        probe.refuse_fields(capture.model.n_layers)
        probe.refuse(capture.prompts)
    began = time.monotonic()  # not the clock, which may be set back
    per_quintile = per_quintile or None
    base, drawn = draw(capture, per_quintile)
    findings = {probe.name: analysed(probe, base, {}) for probe in chosen}
    pool, provenance = capture.prompts, dict(capture.provenance)
    checks = provenance.pop("selfcheck", "not known")
    parameters = {probe.name: probe.parameters() for probe in chosen}
    asked = [str(of_probe.get("target")) for of_probe in parameters.values()]
    told = {} if pool.clusters is None else {"clusters": described(with_targets(pool, asked))}
    spec = {
        "capture_of": capture.model.name, "probes": parameters, "prompts": pool.name, "prompts_hash": pool.content_hash,
        "per_quintile": per_quintile, "seed": capture.seed, "edits": provenance.pop("edits", []), **provenance,
    }  # fmt: skip
    is_checked = isinstance(checks, Sequence) and not isinstance(checks, str)
    record = RunRecord(
        spec=spec,
        spec_hash=digest_of(spec),
        model=asdict(capture.model) | ({} if is_checked else {"selfcheck": str(checks)}),
        prompts={"name": pool.name, "source": pool.source, "unit": pool.unit, "n": len(pool),
                 "hash": pool.content_hash, "draw": drawn, "seed": pool.seed, **told},
        selfcheck=tuple(checks) if is_checked else (),
        timings={"analyses": round(time.monotonic() - began, 4)},
        findings=findings,
        parameters=parameters,
    )  # fmt: skip
    if out is not None:
        record = written(record, Path(out), capture.model.name)
        if report:
            record.show()
    return record


def _served(capture: Capture, chosen: Sequence[ChosenProbe]) -> tuple[Probe, ...]:
    kept = []
    there = ", ".join(dict.fromkeys(need.site for need in capture.arrays))
    for each in chosen:
        probe = each.probe
        missing = ", ".join(dict.fromkeys(need.site for need in probe.needs if need not in capture.arrays))
        found, fix = "", ""
        if probe.edits_model or probe.follows_checkpoints:
            found, fix = "it makes passes of its own, and a capture is no model", "Run it on the model: interp.run."
        elif missing:
            found = f"it needs {missing} in a way that was not captured; there are {there}"
            fix = f"Capture every need in interp.registry.load_entry('probe', {probe.name!r})().needs."
        if not found:
            kept.append(probe)
        elif each.is_named:
            asked = f"the probe {probe.name} on the capture of {capture.model.name}"
            raise UsageError(asked=asked, found=found, fix=fix)
    if not kept:
        raise UsageError(
            asked=f"probes on the capture of {capture.model.name}",
            found="it lacks something that each of them needs",
            fix="Capture what one of them needs: `interp list probes NAME`.",
        )
    return tuple(kept)
