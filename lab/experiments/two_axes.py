"""Do batching, order and attention kernel act independently? All eight combinations, and their interactions in numbers.

    batching    static | continuous
    ordering    fcfs | shortest-prompt
    attention   padded | packed (variable-length)

An effect is a ratio: how many times larger a metric is at the second level than at the first, all else equal (the
geometric mean over the other axes). If two axes act independently, the effect of one is the same at both levels of
the other; their interaction, the ratio of the two effects, is then 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import exp, log
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import Report
from lab.request import SamplingParams
from lab.running import Comparison, compare, run
from lab.workload import RequestSpec, Workload

LEVELS: dict[str, tuple[str, str]] = {
    "batching": ("static", "continuous"),
    "ordering": ("fcfs", "shortest-prompt"),
    "attention": ("padded", "packed"),
}
METRICS: dict[str, Callable[[Report], float]] = {
    "output tokens/s": lambda report: report.output_tokens_per_s,
    "mean TTFT (s)": lambda report: report.ttft_s.mean or 0.0,
    "mean end-to-end (s)": lambda report: report.e2e_s.mean or 0.0,
}
Cell = tuple[str, str, str]  # a level of each axis


@dataclass(frozen=True, slots=True)
class TwoAxes:
    """What came out: a report per combination, in the order of LEVELS."""

    comparison: Comparison

    @property
    def reports(self) -> dict[Cell, Report]:
        """Reports by (batching, ordering, attention)."""
        return {cell: self.comparison[_name(cell)] for cell in cells()}

    def rows(self) -> list[dict[str, Any]]:
        """The table: one row per combination."""
        return [
            {
                **dict(zip(LEVELS, cell, strict=True)),
                **{name: round(metric(report), 2) for name, metric in METRICS.items()},
                "padded tokens": report.padded_tokens,
            }
            for cell, report in self.reports.items()
        ]

    def effect(self, axis: str, metric: str, **at: str) -> float:
        """How many times larger `metric` is at the second level of `axis`; `at` fixes other axes."""
        low, high = LEVELS[axis]
        place = list(LEVELS).index(axis)
        changes = []
        for cell, report in self.reports.items():
            levels = dict(zip(LEVELS, cell, strict=True))
            if levels[axis] == low and all(levels[name] == level for name, level in at.items()):
                other = self.reports[(*cell[:place], high, *cell[place + 1 :])]
                changes.append(log(METRICS[metric](other) / METRICS[metric](report)))
        return exp(sum(changes) / len(changes))

    def interaction(self, axis: str, other: str, metric: str) -> float:
        """Effect of `axis` at the second level of `other`, divided by its effect at the first. 1: independent."""
        low, high = (self.effect(axis, metric, **{other: level}) for level in LEVELS[other])
        return high / low

    def effects(self, metric: str) -> dict[str, float]:
        """All effects and pairwise interactions of one metric."""
        single = {axis: self.effect(axis, metric) for axis in LEVELS}
        pairs = {f"{a} × {b}": self.interaction(a, b, metric) for a, b in combinations(LEVELS, 2)}
        return single | pairs


def cells() -> Iterator[Cell]:
    """All combinations."""
    return product(*LEVELS.values())  # type: ignore[return-value]


def _name(cell: Cell) -> str:
    return ", ".join(cell)


def two_axes(model: Any, work: Workload | None = None, batch: int = 4, repeats: int = 1, **options: Any) -> TwoAxes:
    """Run all eight combinations on `model` (real or priced); the same requests, the same rest.

    Prompts are computed whole and tokens are delivered one by one in all of them, so that only the three axes differ.
    On a real model the waiting between arrivals is skipped: computing is measured, idling is not. With `repeats` all
    combinations take turns so often, and the quickest run of each counts: a noisy moment only ever adds time.
    """
    if repeats < 1:
        raise BadPolicy(f"two axes measured {repeats} times; it must be at least 1")
    work = crowd() if work is None else work
    runs = {_name(cell): dict(batching=f"{cell[0]}:{batch}", ordering=cell[1], attention=cell[2]) for cell in cells()}
    common = dict(chunking="whole", delivery="token", clock="virtual") | options
    first = compare(work, model, runs, **common)
    turns = [first.reports]
    turns += [{name: run(work, model, **common | own) for name, own in runs.items()} for _ in range(repeats - 1)]
    quickest = {name: min((turn[name] for turn in turns), key=lambda report: report.duration_s) for name in runs}
    return TwoAxes(Comparison(quickest, first.same))


def crowd(requests: int = 16, seed: int = 0, shortest: int = 8, longest: int = 96, output: int = 24) -> Workload:
    """All are there at once: prompts of very different length, answers of 2 to `output` tokens, ids instead of text."""
    draw = random.Random(seed)
    specs = []
    for place in range(requests):
        tokens = draw.choice((shortest, draw.randint(shortest, longest), longest))
        prompt = tuple(100 + (101 * place + i) % 400 for i in range(tokens))
        sampling = SamplingParams(max_tokens=draw.randint(2, output), ignore_eos=True)
        specs.append(RequestSpec(0.0, prompt, sampling))
    return Workload(f"crowd-{requests}-seed{seed}", tuple(specs))
