"""Reports of a session's runs, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.errors import EngineStopped
from lab.live.lane import Lane
from lab.metrics import Report
from lab.running import Comparison, SameTokens, same_tokens


def find(lanes: Sequence[Lane], name: str) -> Lane:
    """The lane of that name. Raises KeyError naming those there are."""
    found = {lane.name: lane for lane in lanes}
    if name not in found:
        raise KeyError(f"no run {name!r} has begun; there are {', '.join(found) or 'none'}")
    return found[name]


def report(lane: Lane) -> Report:
    """What the lane has done so far."""
    with lane.lock:
        return Report.from_trace(lane.trace, lane.slo)


def comparison(lanes: Sequence[Lane]) -> Comparison:
    """All lanes, the first being the reference. Raises EngineStopped when none has begun."""
    reports = {lane.name: report(lane) for lane in lanes}
    if not reports:
        raise EngineStopped("nothing has run yet: start the session first")
    reference = next(iter(reports.values()))
    return Comparison(reports, {name: _same_where_done(reference, other) for name, other in reports.items()})


def _same_where_done(reference: Report, report: Report) -> SameTokens:
    """The token verdict over the requests that ran to their end in both."""
    common = [i for i, times in reference.times.items() if times.done and i in report.times and report.times[i].done]
    left = replace(reference, times={i: reference.times[i] for i in common})
    right = replace(report, times={i: report.times[i] for i in common})
    return same_tokens(left, right)
