"""Latencies and their limits (SLOs) while a run goes on. As in `lab.metrics.Report` only requests that ran to their end
have latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.errors import BadPolicy
from lab.live.rows import RowView
from lab.live.sample import Sample
from lab.metrics import SLO_NAMES
from lab.numbers import real


def checked(slo: dict[str, float] | None) -> dict[str, float]:
    """Limits in seconds by metric. Raises BadPolicy for an unknown name, and for what is no time."""
    if slo is not None and not isinstance(slo, Mapping):
        raise BadPolicy(f"slo is {slo!r}; it must be a dict from a metric to seconds, as in {{'ttft': 1}}")
    unknown = sorted(map(str, set(slo or {}) - set(SLO_NAMES)))
    if unknown:
        raise BadPolicy(f"SLO on {', '.join(unknown)}; there are {', '.join(SLO_NAMES)} (seconds)")
    return {name: real(limit, f"an SLO on {name} (s) of") for name, limit in (slo or {}).items()}


class Limits:
    """Judges each request once, when its last token is in the user's hands: as `RequestTimes.meets` does."""

    def __init__(self, slo: dict[str, float] | None = None):
        self.slo = slo or {}
        self.judged = self.met = 0
        self.ttft, self.itl = Sample(), Sample()

    def gap(self, view: RowView, gap: float) -> None:
        """Seconds between two tokens of a request; kept with it until it has ended."""
        view.longest_gap = max(view.longest_gap, gap)
        if view.judged:  # a step that took no time ends with its request
            self.itl.add(gap)
        else:
            view.gaps.append(gap)

    def judge(self, view: RowView, handed_over: float, first: float | None = None) -> None:
        """A request has ended well. `first` is when it had its first token, unless the row says so."""
        arrival, first = view.info.arrival_time, view.first if first is None else first
        assert first is not None and view.began is not None and view.last is not None
        self.ttft.add(first - arrival)
        for gap in view.gaps:
            self.itl.add(gap)
        view.gaps, view.judged = [], True
        values = {
            "ttft": first - arrival,
            "tpot": (view.last - view.began) / (view.output - 1) if view.output > 1 else 0.0,
            "itl": view.longest_gap,
            "e2e": max(view.last, handed_over) - arrival,
        }
        self.judged += 1
        self.met += all(values[name] <= limit for name, limit in self.slo.items())

    def numbers(self) -> dict[str, Any] | None:
        """{"met", "judged", and the share (0 to 1) of first tokens and of gaps within the limit}; None without SLO."""
        if not self.slo:
            return None
        shares = {"ttft": self.ttft, "itl": self.itl}
        found = {name: shares[name].share(limit) for name, limit in self.slo.items() if name in shares}
        return {"met": self.met, "judged": self.judged, **found}
