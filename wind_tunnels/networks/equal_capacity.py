"""Networks of equal capacity: the width at which one architecture has as many parameters as another."""

import math
from bisect import bisect_right
from dataclasses import replace

from interp.errors import UsageError
from interp.tunnel import Task

from .architectures import FEED_FORWARD, Network, architecture, feed_forward_step
from .networks import count_parameters

TOLERANCE = 0.02
"""Parameter counts agree within this share."""


def matched_to(network: Network, reference: Network, task: Task) -> Network:
    """`network` at the width with as many parameters as `reference` on a task; `UsageError` if none is within 2 %."""
    target = count_parameters(reference, task)
    below = widest_not_above(network, task, target)
    above = below + _unit(network)
    tried = [_with_feed_forward(_at(network, width), task, target) for width in (below, above) if width > 0]
    counts = {candidate: count_parameters(candidate, task) for candidate in tried}
    gaps = {candidate: abs(count / target - 1) for candidate, count in counts.items()}
    close = [candidate for candidate, gap in gaps.items() if gap <= TOLERANCE]
    if not close:
        near = " and ".join(f"{count:,} with d_model = {candidate.d_model}" for candidate, count in counts.items())
        raise UsageError(
            asked=f"{network.arch} of {network.n_layers} layers with the {target:,} parameters of {reference.arch}",
            found=f"the nearest have {near}, and {TOLERANCE:.0%} is allowed",
            fix="Choose another number of layers, or a larger network to match.",
        )
    usual = {candidate: _at(candidate, candidate.d_model).d_feed_forward for candidate in close}
    return min(close, key=lambda each: (abs(math.log(each.d_feed_forward / usual[each])), gaps[each]))


def _unit(network: Network) -> int:
    """The step in width: heads have an even number of dimensions."""
    return 2 * network.n_heads if network.n_heads is not None else 1


def _at(network: Network, width: int) -> Network:
    return replace(network, d_model=width, d_mlp=None)


def widest_not_above(network: Network, task: Task, target: int) -> int:
    """The largest width with at most `target` parameters, or 0."""
    unit = _unit(network)

    def count(n_units: int) -> int:
        return count_parameters(_at(network, n_units * unit), task)

    too_wide = 1
    while count(too_wide) <= target:
        too_wide *= 2
    return unit * bisect_right(range(1, too_wide), target, key=count)


def _with_feed_forward(network: Network, task: Task, target: int) -> Network:
    """The network with the feed-forward width that comes closest; the parameters grow linearly with it."""
    if FEED_FORWARD not in architecture(network.arch):
        return network
    step, width = feed_forward_step(network.arch), network.d_feed_forward
    count = count_parameters(network, task)
    per_step = count_parameters(replace(network, d_mlp=width + step), task) - count
    return replace(network, d_mlp=max(step, width + step * round((target - count) / per_step)))
