"""A stretch: the same decode step many times over, each row one token further on, priced in a few operations a step."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import ceil

from lab.simulation.costs import Costs
from lab.simulation.work import StepWork


def ends_of(costs: Costs, work: StepWork, repeat: int, until: float | None = None) -> list[float]:
    """Seconds after which each of up to `repeat` steps is over; the last is the first to reach `until` seconds.

    A step with chunks cannot repeat: it is carried out once. Block copies come before the first step only.
    """
    fixed, key, copying = costs.fixed_seconds(work), costs.key_seconds(work), costs.copy_seconds(work)
    if work.chunk_pairs or repeat == 1:
        return [fixed + key * work.single_keys + copying]
    first = fixed + key * work.single_keys
    if until is not None:
        repeat = min(repeat, max(1, ceil(until / first) + 1))  # later steps are never shorter than the first
    if work.width:
        steps = [fixed + key * work.keys_after(step) for step in range(repeat)]
    else:
        slope = key * work.growing
        steps = [first + slope * step for step in range(repeat)]
    steps[0] += copying
    ends = list(accumulate(steps))
    if until is not None:
        del ends[bisect_left(ends, until) + 1 :]
    return ends
