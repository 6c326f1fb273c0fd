"""Steps of the real engine, timed: what a calibration is fitted to.

All points take turns in every round, so that a noisy moment of the machine hits each of them once. The median over
the rounds counts; the spread over the rounds says how far to trust it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import percentile
from lab.numbers import real
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request

BLOCK_SIZE = 16
MOST_ROUNDS = 9


@dataclass(slots=True)
class Point:
    """One shape of step: rows of (tokens resident, tokens to compute), all of which sample."""

    kind: str  # decode, prefill, mixed or padded
    rows: tuple[tuple[int, int], ...]
    seconds: list[float] = field(default_factory=list)  # one per round

    @property
    def attention(self) -> str:
        """The kernel that computes it."""
        return "padded" if self.kind == "padded" else "packed"

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return len(self.rows) * self.width if self.kind == "padded" else sum(count for _, count in self.rows)

    @property
    def width(self) -> int:
        """Tokens of the widest row."""
        return max(count for _, count in self.rows)

    @property
    def time(self) -> float:
        """Median seconds."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Interquartile range over the median: 0 where every round took equally long."""
        ordered = sorted(self.seconds)
        return (percentile(ordered, 0.75) - percentile(ordered, 0.25)) / self.time

    @property
    def name(self) -> str:
        """For people: "decode 8 × 1 after 256"."""
        parts = [f"{self.rows.count(row)} × {row[1]} after {row[0]}" for row in dict.fromkeys(self.rows)]
        return f"{self.kind} {' + '.join(parts)}"

    def plan(self, requests: Sequence[Request] | None = None) -> StepPlan:
        """The step. Without `requests` it can be priced, with them computed."""
        wide = self.width if self.kind == "padded" else 0
        requests = requests or [
            Request(index, None, num_prompt=start + count) for index, (start, count) in enumerate(self.rows)
        ]
        rows = [
            Row(request, start, count, True, max(0, wide - count))
            for request, (start, count) in zip(requests, self.rows, strict=True)
        ]
        return StepPlan(rows, self.attention)


def points(max_context: int | None = None) -> list[Point]:
    """Decode steps, chunks, mixtures and rectangles of a small model's usual sizes, as far as contexts allow."""
    found = [Point("decode", ((context, 1),) * batch) for context in (32, 256) for batch in (1, 2, 4, 8, 16, 32)]
    found += [Point("decode", ((128, 1),) * batch) for batch in (3, 5, 6, 12, 24)] + [Point("decode", ((1024, 1),) * 4)]
    found += [Point("prefill", (chunk,)) for chunk in CHUNKS] + [Point("prefill", ((0, 48),) * 8)]
    found += [Point("mixed", ((256, 1),) * decodes + ((start, chunk),)) for decodes, start, chunk in MIXTURES]
    found += [Point("padded", rows) for rows in RECTANGLES]
    limit = max_context or 1 << 62
    return [point for point in found if all(sum(row) < limit for row in point.rows)]


CHUNKS = ((0, 16), (0, 64), (0, 128), (0, 256), (0, 640), (512, 64), (512, 256), (1024, 128))  # (resident, computed)
MIXTURES = ((4, 0, 28), (8, 0, 120), (16, 256, 240))  # decodes after 256, and a chunk (resident, computed)
RECTANGLES = (
    ((32, 1),) * 8,
    ((128, 1),) * 4,
    ((256, 1),) * 16,
    tuple((16 + 32 * place, 1) for place in range(8)),
    tuple((0, 12 + 12 * place) for place in range(4)),
    tuple((0, 10 + 10 * place) for place in range(8)),
    ((0, 160),) * 4,
)


class Bench:
    """One runner whose pool is as large as the largest point needs."""

    def __init__(self, model: Any, found: Sequence[Point]):
        needs = [sum(-(-sum(row) // BLOCK_SIZE) for row in point.rows) for point in found]
        self.runner = model.runner(max(needs), BLOCK_SIZE)
        # blocks that were never written may all be one page of memory, which would be read from cache
        copies = [BlockCopy("copy", 0, block) for block in range(1, max(needs))]
        self.runner.run(StepPlan([], copies=copies))

    def time(self, point: Point) -> float:
        """Seconds of one step of this shape."""
        requests, first = [], 0
        for index, (start, count) in enumerate(point.rows):
            blocks = -(-(start + count) // BLOCK_SIZE)
            request = Request(index, [1] * (start + count), block_table=list(range(first, first + blocks)))
            requests.append(request)
            first += blocks
        return self.runner.run(point.plan(requests)).seconds


def measure(
    model: Any, budget: float = 40.0, say: Callable[[str], None] | None = None, found: list[Point] | None = None
) -> list[Point]:
    """Time every point in rounds until `budget` seconds are over: 2 rounds at least, 9 at most.

    Raises BadPolicy where the budget is no positive number of seconds.
    """
    if real(budget, "a calibration (s) of") == 0:
        raise BadPolicy("a calibration of 0 s; it must be above 0")
    found = points(model.max_context) if found is None else found
    more_rounds(model, found, budget, say)
    return found


def more_rounds(
    model: Any, found: Sequence[Point], budget: float, say: Callable[[str], None] | None = None, least: int = 2
) -> None:
    """Add rounds for `budget` seconds; at least until every point has `least` times."""
    began = time.perf_counter()
    bench = Bench(model, found)
    for point in found[:: max(1, len(found) // 5)]:  # kernels are compiled and loaded, untimed
        bench.time(point)
    lap = 0.0
    while len(found[0].seconds) < least or time.perf_counter() - began + lap < budget:
        started = time.perf_counter()
        for point in found:
            point.seconds.append(bench.time(point))
        lap, rounds = time.perf_counter() - started, len(found[0].seconds)
        if say:
            say(f"round {rounds}: {len(found)} steps in {lap:.1f} s")
        if rounds >= MOST_ROUNDS:
            return
