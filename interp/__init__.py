"""A calibrated instrument for the geometry of uncertainty inside language models.

    import interp
    model = interp.load("pythia-410m")
    record = interp.run(model, probes=["manifold"], prompts="mixed")
    record.findings["manifold"].to_frame("by_layer")

Names are imported when they are first used: `import interp` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.attention import Listener, listening
    from interp.capture import Capture, ModelInfo
    from interp.comparing import compare
    from interp.costs import Plan, plan
    from interp.detectable import power
    from interp.differences import Diff, diff
    from interp.editing.editor import applied
    from interp.edits import (
        AblateHeads,
        AttentionOff,
        BypassLayer,
        Edit,
        FeedForwardOff,
        KeepAxis,
        RemoveAxis,
        ReplaceCoordinates,
        RotateAxes,
        ShiftAxis,
    )
    from interp.errors import InterpError
    from interp.findings import Findings, Null, Scalar
    from interp.folds import Mean, Moments, PromptMean, Rows
    from interp.many import ManyRuns, run_many
    from interp.models import load
    from interp.need import Need
    from interp.observe import collect
    from interp.probe import Condition, Figure, Probe, Readout
    from interp.prompt import Prompt, PromptSet
    from interp.record import RunRecord, open_run
    from interp.replicating import replicate
    from interp.runner import run
    from interp.selfcheck import check_model
    from interp.streaming import Folded, collect_stream
    from interp.table import Table

_HOME = {
    "AblateHeads": "edits",
    "AttentionOff": "edits",
    "BypassLayer": "edits",
    "Capture": "capture",
    "Condition": "probe",
    "Diff": "differences",
    "Edit": "edits",
    "FeedForwardOff": "edits",
    "Figure": "probe",
    "Findings": "findings",
    "Folded": "streaming",
    "InterpError": "errors",
    "KeepAxis": "edits",
    "Listener": "attention",
    "ManyRuns": "many",
    "Mean": "folds",
    "ModelInfo": "capture",
    "Moments": "folds",
    "Need": "need",
    "Null": "findings",
    "Probe": "probe",
    "Prompt": "prompt",
    "Plan": "costs",
    "PromptMean": "folds",
    "PromptSet": "prompt",
    "Readout": "probe",
    "RemoveAxis": "edits",
    "ReplaceCoordinates": "edits",
    "RotateAxes": "edits",
    "Rows": "folds",
    "RunRecord": "record",
    "Scalar": "findings",
    "ShiftAxis": "edits",
    "Table": "table",
    "applied": "editing.editor",
    "check_model": "selfcheck",
    "collect": "observe",
    "collect_stream": "streaming",
    "compare": "comparing",
    "diff": "differences",
    "listening": "attention",
    "load": "models",
    "open_run": "record",
    "plan": "costs",
    "power": "detectable",
    "replicate": "replicating",
    "run": "runner",
    "run_many": "many",
}
"""Every public name and the module it lives in."""

__all__ = [
    "AblateHeads", "AttentionOff", "BypassLayer", "Capture", "Condition", "Diff", "Edit", "FeedForwardOff", "Figure",
    "Findings", "Folded", "InterpError", "KeepAxis", "Listener", "ManyRuns", "Mean", "ModelInfo", "Moments", "Need",
    "Null", "Plan", "Probe", "Prompt", "PromptMean", "PromptSet", "Readout", "RemoveAxis", "ReplaceCoordinates",
    "RotateAxes", "Rows", "RunRecord", "Scalar", "ShiftAxis", "Table", "applied", "check_model", "collect",
    "collect_stream", "compare", "diff", "listening", "load", "open_run", "plan", "power", "replicate", "run",
    "run_many",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    value = getattr(import_module(f"interp.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
