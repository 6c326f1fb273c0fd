"""Latency limits (SLOs) while a run goes on: how many first tokens, gaps and requests have kept them so far."""

from __future__ import annotations

from typing import Any

from lab.errors import BadPolicy
from lab.live.rows import RowView
from lab.live.sample import Sample
from lab.metrics import SLO_NAMES
from lab.numbers import real


def checked(slo: dict[str, float] | None) -> dict[str, float]:
    """Limits in seconds by metric. Raises BadPolicy for an unknown name, and for what is no time."""
    unknown = sorted(set(slo or {}) - set(SLO_NAMES))
    if unknown:
        raise BadPolicy(f"SLO on {', '.join(unknown)}; there are {', '.join(SLO_NAMES)} (seconds)")
    return {name: real(limit, f"an SLO on {name} (s) of") for name, limit in (slo or {}).items()}


class Limits:
    """Judges each request once, when its last token is in the user's hands: as `RequestTimes.meets` does."""

    def __init__(self, slo: dict[str, float] | None = None):
        self.slo = slo or {}
        self.judged = self.met = 0

    def judge(self, view: RowView, handed_over: float) -> None:
        """A request has ended well."""
        arrival = view.info.arrival_time
        assert view.first is not None and view.began is not None and view.last is not None
        values = {
            "ttft": view.first - arrival,
            "tpot": (view.last - view.began) / (view.output - 1) if view.output > 1 else 0.0,
            "itl": view.longest_gap,
            "e2e": max(view.last, handed_over) - arrival,
        }
        self.judged += 1
        self.met += all(values[name] <= limit for name, limit in self.slo.items())

    def numbers(self, ttft: Sample, itl: Sample) -> dict[str, Any] | None:
        """{"met", "judged", and the share (0 to 1) of first tokens and of gaps within the limit}; None without SLO."""
        if not self.slo:
            return None
        shares = {"ttft": ttft, "itl": itl}
        found = {name: shares[name].share(limit) for name, limit in self.slo.items() if name in shares}
        return {"met": self.met, "judged": self.judged, **found}
