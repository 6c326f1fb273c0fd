"""Open question 2 as an experiment: seats in the batch against sharing by order, on the virtual clock.

More seats use a step better; but each running request holds blocks that a cache could keep. Orders that know the
cache want few different prefixes at once. Which matters more, and do they get in each other's way?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from lab.course.families import families, found
from lab.metrics import Report

ORDERS = {
    "first come": "fcfs",
    "longest prefix": "longest-prefix",
    "… aged 4 s": "aged:longest-prefix:4s",
    "k-LPM, k = 4": "k-lpm:4",
    "response ratio": "hrrn",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Means over the seeds, and the spread of the throughput."""

    found: float
    tokens_per_s: float
    spread: float  # half the range of tokens/s over the seeds
    median_s: float
    worst_s: float
    running: float
    preemptions: float


def measure(reports: Sequence[Report]) -> Cell:
    """One cell from one run per seed."""
    speeds = [report.output_tokens_per_s for report in reports]
    return Cell(
        fmean(found(report) for report in reports),
        fmean(speeds),
        (max(speeds) - min(speeds)) / 2,
        fmean(report.ttft_s.p50 for report in reports),
        fmean(max(times.ttft for times in report.times.values()) for report in reports),
        fmean(report.mean_batch for report in reports),
        fmean(report.preemptions for report in reports),
    )


def grid(seats: Sequence[int], rate: float = 8.0, seeds: Sequence[int] = (0, 1, 2)) -> dict[tuple[str, int], Cell]:
    """(order, seats) -> cell; 96 requests of ten families in 100 blocks, which is less than their prefixes need."""
    from lab.running import run
    from lab.simulation.priced import Priced

    prices = Priced(step=0.020, token=0.001)
    cells = {}
    for name, spec in ORDERS.items():
        for size in seats:
            options = {"ordering": spec, "prefix_cache": "radix", "blocks": 100, "batching": f"continuous:{size}"}
            cells[name, size] = measure([run(families(rate=rate, seed=seed), prices, **options) for seed in seeds])
    return cells


def verdict(cells: dict[tuple[str, int], Cell]) -> list[str]:
    """What these numbers say about the question; every sentence is worked out from them."""
    seats = sorted({size for _, size in cells})
    few, plain = seats[0], "first come"
    (order, size), best = max(cells.items(), key=lambda entry: entry[1].tokens_per_s)
    most_plain = max((cells[plain, each].tokens_per_s, each) for each in seats)
    by_seats = most_plain[0] / cells[plain, few].tokens_per_s
    by_order = max(cells[name, few].tokens_per_s for name in ORDERS) / cells[plain, few].tokens_per_s
    both = best.tokens_per_s / cells[plain, few].tokens_per_s
    near = [
        name
        for name in ORDERS
        if name != order
        and cells[name, size].tokens_per_s >= best.tokens_per_s - best.spread - cells[name, size].spread
    ]
    kind = (
        "more than"
        if both > by_seats * by_order * 1.05
        else "about"
        if both > 0.95 * by_seats * by_order
        else "less than"
    )
    fair = min(ORDERS, key=lambda name: cells[name, size].worst_s)
    return [
        f"more seats alone: {by_seats:.2f}× the tokens per second of {few} seats, first come ({most_plain[1]} seats)",
        f"the order alone: {by_order:.2f}×; both: {both:.2f}×, {kind} the product {by_seats * by_order:.2f}",
        f"best: {order} with {size} seats; within the spread of the seeds: {', '.join(near) or 'no other'}",
        f"longest wait there: {best.worst_s:.1f} s; the shortest of all orders is {fair} "
        f"with {cells[fair, size].worst_s:.1f} s",
    ]
