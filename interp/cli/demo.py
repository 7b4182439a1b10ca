"""What `interp run` measures where nothing is asked: a network whose exact posterior is known, in seconds.

Its process, Mess3, has three hidden states: the exact belief about them is a point of a triangle, and its entropy takes
many values. The residual stream alone is read, few controls are drawn and no subspaces are exchanged.
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
    """The demonstration, where nothing is given but where it goes, what is printed, and what records keep beside."""
    if not {"out", "report", "quiet", *BESIDE}.issuperset(given):
        return None
    return replace(asked, model="tunnel:mess3-gpt-neox", probes=tuple(_SETTINGS), settings=_SETTINGS, n_pool=200)
