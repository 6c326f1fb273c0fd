"""`lab.capacity`: the highest rate of arrivals at which a system keeps its promises.

A rate holds when at least `attainment` of all requests meet every limit of the SLO (refused and aborted ones meet
none). The same requests come in the same order at every rate, only faster or slower: doubling finds a rate that
holds below one that does not, bisection of their ratio narrows the gap. More requests make the answer sharper: a
short workload ends before the queue that a rate above capacity builds up has become long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import ceil, inf, sqrt
from statistics import fmean
from typing import Any

from lab.errors import BadPolicy, BadWorkload, LabError
from lab.metrics import SLO_NAMES, Report, RequestTimes
from lab.numbers import real
from lab.running import run
from lab.trace import RunTrace
from lab.workload import Workload

OCTAVES_DOWN, OCTAVES_UP = 10, 20  # how far doubling goes from the first guess
BACKLOG = 0.1  # share of the requests that come meanwhile by which a queue may grow


class NeverMeets(LabError):
    """No rate of arrivals meets the SLO; says what came nearest."""


@dataclass(slots=True)
class Capacity:
    """`rate` (requests/s) is the highest that held, `fails` the lowest above it that did not; `tried` has them all."""

    rate: float
    fails: float
    slo: dict[str, float]
    attainment: float
    tried: list[dict[str, float | None]] = field(default_factory=list)  # in the order of their rates
    measured: bool = False

    @property
    def at_rate(self) -> dict[str, float | None]:
        """The row of `tried` at the capacity."""
        return next(row for row in self.tried if row["rate"] == self.rate)

    @property
    def growing(self) -> bool:
        """True when, at the capacity, ever more requests waited as long as requests came: see `backlog_grows`."""
        return bool(self.at_rate["growing"])

    def summary(self) -> str:
        """A table of all rates tried, and the result in a sentence."""
        lines = ["requests/s  meeting all  served/s  goodput/s" + "".join(f"{name:>11}" for name in self.slo)]
        for row in self.tried:
            mark = "*" if row["rate"] == self.rate else " "
            values = "".join(f"{_seconds(row[f'{name}_s']):>11}" for name in self.slo)
            lines.append(
                f"{row['rate']:9.4g} {mark}{100 * row['share']:11.1f} %{row['served_per_s']:10.4g}"
                f"{row['goodput_rps']:11.4g}{values}"
            )
        lines += [
            f"capacity: {self.rate:.4g} requests/s for {_limits(self.slo)} by {100 * self.attainment:g} % "
            f"of the requests ({self.fails:.4g} fails); latencies are those that this share stays within",
            f"times: {'measured' if self.measured else 'simulated'}",
        ]
        if self.growing:
            lines.append("a backlog was growing at that rate: with more requests the capacity comes out lower")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("fails", "slo", "attainment", "measured", "growing", "tried")
        return {"capacity_rps": self.rate} | {name: getattr(self, name) for name in names}


def _limits(slo: dict[str, float]) -> str:
    return ", ".join(f"{name} ≤ {limit:g} s" for name, limit in slo.items())


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g} s"


def capacity(
    work: Workload,
    model: Any,
    *,
    slo: dict[str, float],
    attainment: float = 0.9,
    precision: float = 0.05,
    watch: Callable[[str], None] | None = None,
    **options: Any,
) -> Capacity:
    """Search the highest rate at which `attainment` of the requests meet `slo` (seconds, as for `lab.run`).

    The answer lies within `precision` (a ratio) below a rate that fails. `options` are those of `lab.run`; on a real
    model the waiting between arrivals is skipped unless a clock is given. `watch` is told each row as it is found.
    Raises NeverMeets where no rate does, BadWorkload where rates make no difference because all requests arrive at
    once or are too few, BadPolicy for numbers out of range.
    """
    _check(work, slo, attainment, precision)
    for name in ("rate", "load"):
        if name in options:
            raise BadPolicy(f"a capacity with {name}={options[name]!r}: the rate is what is searched; leave {name} out")
    search = _Search(work, model, slo, attainment, {"clock": "virtual"} | options, watch)
    holds, fails = search.bracket()
    while fails > holds * (1 + precision):
        middle = sqrt(holds * fails)
        holds, fails = (middle, fails) if search.holds(middle) else (holds, middle)
    tried = [search.rows[rate] for rate in sorted(search.rows)]
    return Capacity(holds, fails, dict(slo), attainment, tried, search.measured)


def _check(work: Workload, slo: dict[str, float], attainment: float, precision: float) -> None:
    if not slo:
        raise BadPolicy(f"a capacity needs an SLO: limits in seconds for {', '.join(SLO_NAMES)}")
    if not 0 < real(attainment, "an attainment of") <= 1:
        raise BadPolicy(f"an attainment of {attainment}; it must be above 0 and at most 1")
    if not 0.001 <= real(precision, "a precision of") <= 1:
        raise BadPolicy(f"a precision of {precision}; it must be between 0.001 and 1")
    Report.from_trace(RunTrace(), slo)  # raises BadPolicy for names and limits that are none
    if len({spec.arrival for spec in work.specs}) < 2:
        raise BadWorkload(f"all {len(work)} requests of {work.name} arrive at once: there is no rate to search")


class _Search:
    """Runs at rates, each once."""

    def __init__(
        self,
        work: Workload,
        model: Any,
        slo: dict[str, float],
        attainment: float,
        options: dict[str, Any],
        watch: Callable[[str], None] | None,
    ):
        self.work, self.model, self.slo, self.attainment = work, model, slo, attainment
        self.options, self.watch = options, watch
        self.rows: dict[float, dict[str, float | None]] = {}
        self.measured = False

    def holds(self, rate: float) -> bool:
        """Whether the SLO holds at `rate`."""
        if rate not in self.rows:
            report = run(self.work.at_rate(rate), self.model, slo=self.slo, **self.options)
            self.measured = report.measured
            self.rows[rate] = _row(rate, report, self.slo, self.attainment)
            if self.watch:
                self.watch(f"{rate:.4g} requests/s: {100 * self.rows[rate]['share']:.1f} % meet the SLO")
        return self.rows[rate]["share"] >= self.attainment

    def first_that_holds(self) -> float:
        """A rate that holds: half of what a crowd is served at, or the nearest above or below it."""
        guess = self.guess()
        downwards = [guess / 2**octave for octave in range(OCTAVES_DOWN + 1)]
        for rate in [guess, *downwards[1:3], guess * 2, guess * 4, *downwards[3:]]:  # batches that fill fail below
            if self.holds(rate):
                return rate
        raise NeverMeets(self._nearest())

    def bracket(self) -> tuple[float, float]:
        """A rate that holds, and the first of its doubles that fails."""
        rate = self.first_that_holds()
        for _ in range(OCTAVES_UP):
            rate *= 2
            if not self.holds(rate):
                return rate / 2, rate
        raise BadWorkload(
            f"all {len(self.work)} requests meet the SLO even when they arrive almost at once ({rate:.3g}/s): "
            f"give more requests, or tighter limits"
        )

    def guess(self) -> float:
        """Half the rate at which the first requests are served when they all wait from the start."""
        crowd = replace(self.work, specs=self.work.specs[:256]).at_rate(1e9)
        served = run(crowd, self.model, **self.options).requests_per_s
        if not served:
            raise BadWorkload(f"none of the requests of {self.work.name} can be served")
        return served / 2

    def _excess(self, row: dict[str, float | None]) -> tuple[float, float]:
        """How many times a limit is exceeded, at worst, by what `attainment` of the requests stay within."""
        values = [(row[f"{name}_s"], limit) for name, limit in self.slo.items()]
        worst = max(inf if value is None or not limit else value / limit for value, limit in values)
        return worst, -row["share"]

    def _nearest(self) -> str:
        """The sentence for an SLO that nobody can meet."""
        best = min(self.rows.values(), key=self._excess)
        limits = _limits(self.slo)
        reached = ", ".join(f"{name} {_seconds(best[f'{name}_s'])}" for name in self.slo)
        return (
            f"no rate from {min(self.rows):.3g} to {max(self.rows):.3g} requests/s meets {limits} for "
            f"{100 * self.attainment:g} % of the requests: at {best['rate']:.3g}/s {100 * best['share']:.1f} % do, and "
            f"{100 * self.attainment:g} % stay within {reached}"
        )


def _row(rate: float, report: Report, slo: dict[str, float], attainment: float) -> dict[str, float | None]:
    """What one rate gave. Of each limited metric, the value that `attainment` of all requests stay within."""
    done = [times for times in report.times.values() if times.done]
    row: dict[str, float | None] = {
        "rate": rate,
        "share": sum(times.meets(slo) for times in done) / report.requests,
        "arrived_per_s": report.requests / max(times.arrival for times in report.times.values()),
        "served_per_s": report.requests_per_s,
        "goodput_rps": report.goodput_rps,
        "output_tokens_per_s": report.output_tokens_per_s,
        "growing": backlog_grows(report.times.values()),
    }
    for name in slo:
        values = sorted([_value(times, name) for times in done] + [inf] * (report.requests - len(done)))
        reached = values[ceil(attainment * len(values)) - 1]
        row[f"{name}_s"] = reached if reached < inf else None
    return row


def backlog_grows(times: Iterable[RequestTimes]) -> bool:
    """Whether the queue grew while requests came, by more than BACKLOG of those that came and more than chance.

    Counted is how many others wait to be let in when a request comes, on average over the second quarter of the
    requests and over the last: what happens after the last arrival does not matter. Between the two quarters half of
    all requests come, and a Poisson process brings that number ± its square root.
    """
    queued = [one for one in times if one.finish_reason != "refused"]
    arrivals = sorted(one.arrival for one in queued)
    admitted = sorted(one.admitted for one in queued if one.admitted is not None)
    waiting = [place - bisect_right(admitted, arrival) for place, arrival in enumerate(arrivals)]
    quarter, came = len(waiting) // 4, len(waiting) / 2
    if not quarter:
        return False
    grown = fmean(waiting[-quarter:]) - fmean(waiting[quarter : 2 * quarter])
    return grown > max(BACKLOG * came, sqrt(came))


def _value(times: RequestTimes, name: str) -> float:
    """One latency of one request, as `RequestTimes.meets` compares it with its limit."""
    if name == "itl":
        return max(times.gaps, default=0.0)
    return getattr(times, name) or 0.0
