"""Questions about waiting that notebooks 02 and 03 ask of a report."""

from __future__ import annotations

from lab.metrics import Report


def worst_wait(report: Report) -> float:
    """Longest time from arrival to admission, in seconds."""
    return max(times.admitted - times.arrival for times in report.times.values())


def busy_at(report: Report, moment: float) -> bool:
    """A step was running at that moment, its ends included."""
    return any(step.start <= moment <= step.end for step in report.trace)


def overtaken(report: Report) -> int:
    """How many requests were admitted later than somebody who had arrived after them."""
    first, count = float("inf"), 0
    for times in sorted(report.times.values(), key=lambda times: (times.arrival, times.id), reverse=True):
        count += times.admitted > first
        first = min(first, times.admitted)
    return count
