"""Continuous scheduling: several steps in flight at once against one batch, on the same requests.

A decode step reads all weights, whatever the size of its batch. Two lanes of half the requests read them twice as
often for the same tokens, so they can only win where one lane leaves something idle that the other can use: gaps
between kernels, or arithmetic while the other waits for memory (a prefill beside a decode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import Report
from lab.running import Comparison, compare
from lab.summary import aligned
from lab.workload import Workload


@dataclass(frozen=True, slots=True)
class Streams:
    """A report per way of using the device, and whether all gave the same tokens. `weight_bytes` of one full step."""

    comparison: Comparison
    weight_bytes: float

    def __getitem__(self, lanes: str) -> Report:
        return self.comparison[lanes]

    def rows(self) -> list[dict[str, Any]]:
        """The table: one row per way. MB are 10⁶ bytes of weights read per output token."""
        return [
            {
                "lanes": name,
                "output tokens/s": round(report.output_tokens_per_s, 1),
                "TTFT p50 (s)": _rounded(report.ttft_s.p50),
                "ITL p50 (s)": _rounded(report.itl_s.p50),
                "ITL p95 (s)": _rounded(report.itl_s.p95),
                "longest ITL (s)": _rounded(longest_gap(report)),
                "busy": round(report.utilisation, 3),
                "in flight together": round(together(report), 3),
                "steps": report.steps,
                "weights MB per token": round(weights_per_token(report, self.weight_bytes) / 1e6, 2),
                "same tokens": self.comparison.same[name].verdict,
            }
            for name, report in self.comparison.reports.items()
        ]

    def __str__(self) -> str:
        rows = self.rows()
        lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        clock = "measured" if self[rows[0]["lanes"]].measured else "simulated"
        return "\n".join([*aligned(lines), f"times: {clock}"])


def streams(work: Workload, model: Any, lanes: Sequence[str] = ("one", "split:2", "phases"), **options: Any) -> Streams:
    """Run `work` once for every entry of `lanes` (see lab.lanes), all else equal; options are those of `lab.run`.

    Raises BadPolicy for an entry that is given twice or a batching policy that cannot be split.
    """
    if len(set(lanes)) != len(lanes) or not lanes:
        raise BadPolicy(f"lanes {list(lanes)}: give at least one, and each once")
    return Streams(
        compare(work, model, {name: {"lanes": name} for name in lanes}, **options), float(model.weight_bytes)
    )


def weights_per_token(report: Report, weight_bytes: float) -> float:
    """Bytes of weights read per output token: every step reads them all once, however many requests share it."""
    return report.steps * weight_bytes / report.output_tokens if report.output_tokens else 0.0


def together(report: Report) -> float:
    """Share of the time with a step in flight in which at least two were."""
    edges = sorted(edge for step in report.trace.entries() for edge in ((step.start, 1), (step.end, -1)))
    busy = shared = 0.0
    flights, last = 0, 0.0
    for time, change in edges:
        busy += (time - last) * (flights > 0)
        shared += (time - last) * (flights > 1)
        flights, last = flights + change, time
    return shared / busy if busy else 0.0


def longest_gap(report: Report) -> float | None:
    """The longest gap between two tokens of any request (s)."""
    return max((gap for times in report.times.values() for gap in times.gaps), default=None)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
