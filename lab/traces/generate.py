"""Processes behind the synthetic traces: lengths, arrivals and shared prefixes with prescribed statistics.

Each takes its randomness from `draw` alone. Values have equal weight (quantiles, not samples), so that a small
trace has the statistics it should; only their order is drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev

from lab.traces.formats import KEY_SIZE


# -- lengths ------------------------------------------------------------------------------------------------
def spread(count: int, knots: Sequence[float], mean: float) -> list[int]:
    """`count` rising lengths whose minimum, p50, p95, p99 and maximum are `knots`, with a mean near `mean`.

    Logarithms are linear between the knots, but for p50 to p95: there they follow a power of the rank which is
    found by bisection so that the mean is right.
    """

    def curve(bend: float) -> list[int]:
        return [round(_quantile(rank / (count - 1), knots, bend)) for rank in range(count)]

    return curve(bisect(lambda bend: -fmean(curve(bend)), -mean, 0.02, 50.0))


def _quantile(u: float, knots: Sequence[float], bend: float) -> float:
    ranks = (0.0, 0.5, 0.95, 0.99, 1.0)
    part = next(index for index in range(4) if u <= ranks[index + 1])
    share = (u - ranks[part]) / (ranks[part + 1] - ranks[part])
    return knots[part] * (knots[part + 1] / knots[part]) ** (share**bend if part == 1 else share)


def bisect(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function reaches `target`, or the end of the interval that is nearer."""
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return low


# -- arrivals -----------------------------------------------------------------------------------------------
def _exponentials(count: int) -> list[float]:
    """The exponential distribution as `count` values of equal weight, mean exactly 1."""
    raw = [-math.log(1 - (rank + 0.5) / count) for rank in range(count)]
    return [value / fmean(raw) for value in raw]


def _cv(gaps: Sequence[float]) -> float:
    return pstdev(gaps) / fmean(gaps)


def _times(gaps: Sequence[float], rate: float) -> list[float]:
    """Arrivals from 0 with these gaps, stretched so that count / span is the rate."""
    stretch = (len(gaps) + 1) / rate / sum(gaps)
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap * stretch)
    return times


def bursts(count: int, rate: float, cv: float, long_share: float, draw: random.Random) -> list[float]:
    """Two kinds of exponential gaps, `long_share` of them long, their ratio chosen to give the CV; shuffled."""
    many = round(long_share * (count - 1))
    long, short = _exponentials(many), _exponentials(count - 1 - many)
    ratio = bisect(lambda by: _cv([*short, *(by * gap for gap in long)]), cv, 1.0, 1e6)
    gaps = [*short, *(ratio * gap for gap in long)]
    draw.shuffle(gaps)
    return _times(gaps, rate)


def drifting(count: int, rate: float, cv: float, memory: float, draw: random.Random) -> list[float]:
    """Exponential gaps times a factor that drifts, forgetting itself after about `memory` requests."""
    gaps = _exponentials(count - 1)
    draw.shuffle(gaps)
    keep, level, drift = math.exp(-1 / memory), draw.gauss(0, 1), []
    for _ in gaps:
        drift.append(level)
        level = keep * level + math.sqrt(1 - keep * keep) * draw.gauss(0, 1)

    def stretched(strength: float) -> list[float]:
        return [gap * math.exp(strength * level) for gap, level in zip(gaps, drift, strict=True)]

    return _times(stretched(bisect(lambda strength: _cv(stretched(strength)), cv, 1e-3, 3.0)), rate)


def batches(count: int, rate: float, number: int, draw: random.Random) -> list[float]:
    """`number` stamps at equal distances and requests spread over them at random, at least one on the ends."""
    period = count / rate / (number - 1)
    return [period * stamp for stamp in sorted([0, number - 1, *(draw.randrange(number) for _ in range(count - 2))])]


# -- shared prefixes ----------------------------------------------------------------------------------------
def conversations(
    prompts: Sequence[int], times: Sequence[float], continued: float, draw: random.Random
) -> list[list[int]]:
    """Block keys: every prompt starts with block 0; a `continued` share of them with all of an earlier prompt.

    The earlier one is the longest of eight that fit; its partly filled last block is not shared.
    """
    fresh = iter(range(1, 1 << 30))
    keys: list[list[int]] = []
    for index, prompt in enumerate(prompts):
        needed = -(-prompt // KEY_SIZE)
        older = [place for place in range(index) if times[place] < times[index] and prompts[place] < prompt]
        chance, picks = draw.random(), [draw.random() for _ in range(8)]
        start = [0]
        if older and chance < continued:
            parent = max((older[int(pick * len(older))] for pick in picks), key=lambda place: prompts[place])
            start = keys[parent][: prompts[parent] // KEY_SIZE] or start
        keys.append(start + [next(fresh) for _ in range(needed - len(start))])
    return keys
