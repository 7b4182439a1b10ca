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
    from interp.costs import Plan, plan
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
    from interp.models import load
    from interp.need import Need
    from interp.observe import collect
    from interp.probe import Condition, Figure, Probe, Readout
    from interp.prompt import Prompt, PromptSet
    from interp.record import RunRecord, open_run
    from interp.runner import run
    from interp.selfcheck import check_model
    from interp.table import Table

_HOME = {
    "AblateHeads": "edits",
    "AttentionOff": "edits",
    "BypassLayer": "edits",
    "Capture": "capture",
    "Condition": "probe",
    "Edit": "edits",
    "FeedForwardOff": "edits",
    "Figure": "probe",
    "Findings": "findings",
    "InterpError": "errors",
    "KeepAxis": "edits",
    "Listener": "attention",
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
    "listening": "attention",
    "load": "models",
    "open_run": "record",
    "plan": "costs",
    "run": "runner",
}
"""Every public name and the module it lives in."""

__all__ = [
    "AblateHeads", "AttentionOff", "BypassLayer", "Capture", "Condition", "Edit", "FeedForwardOff", "Figure",
    "Findings", "InterpError", "KeepAxis", "Listener", "Mean", "ModelInfo", "Moments", "Need", "Null", "Plan", "Probe",
    "Prompt", "PromptMean", "PromptSet", "Readout", "RemoveAxis", "ReplaceCoordinates", "RotateAxes", "Rows",
    "RunRecord", "Scalar", "ShiftAxis", "Table", "applied", "check_model", "collect", "listening", "load",
    "open_run", "plan", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    value = getattr(import_module(f"interp.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
