"""What `interp run` measures without options: in seconds, a network whose exact posterior is known.

Its process, Mess3, has three hidden states. Only the residual stream is read, with few controls.
"""

from collections.abc import Collection
from dataclasses import replace

from interp.options import BESIDE, RunOptions

_SETTINGS = {
    "value_axis": {"sites": ("resid",)},
    "belief": {"sites": ("resid",), "interchange": False},
    "causal": {"site": "resid", "n_controls": 60},
}

YOUR_MODEL = "Measure a model of your own: interp run --model FOLDER_OR_HUB_NAME --probe value_axis"


def demo(asked: RunOptions, given: Collection[str]) -> RunOptions | None:
    """The options of the demonstration, or None if options are given that change more than output."""
    if not {"out", "report", "quiet", *BESIDE}.issuperset(given):
        return None
    return replace(asked, model="tunnel:mess3-gpt-neox", probes=tuple(_SETTINGS), settings=_SETTINGS, n_pool=200)
