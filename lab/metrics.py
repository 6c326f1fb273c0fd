"""Report: every metric defined once, computed from a RunTrace and nothing else.

TTFT   first token delivered − arrival (with batch delivery that is the end of the batch)
TPOT   (last token − first token) / (n − 1), per request with n > 1, at the times tokens were computed
ITL    every gap between consecutive tokens of a request, pooled over all requests
e2e    last token delivered − arrival
Only requests that ran to their end ("stop" or "length") have latencies; every computed token counts as work.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from operator import sub
from pathlib import Path
from typing import Any

from lab.distribution import Distribution as Distribution
from lab.distribution import percentile as percentile
from lab.errors import BadPolicy
from lab.numbers import real
from lab.summary import summary_table
from lab.trace import RunTrace, StepTrace

SLO_NAMES = ("ttft", "tpot", "e2e", "itl")


@dataclass(slots=True)
class RequestTimes:
    """What one request went through, in seconds on the run's clock."""

    id: int
    arrival: float
    admitted: float | None = None  # when it was first let into the batch: the end of queueing
    tokens: list[float] = field(default_factory=list)  # when each output token was computed
    output: list[int] = field(default_factory=list)  # their ids; empty when only priced
    margins: list[float] = field(default_factory=list)
    delivered: float | None = None  # when tokens that a batch had held back were handed over
    held_back: int = 0  # how many these were
    finish_reason: str | None = None

    @property
    def done(self) -> bool:
        """Ran to its end."""
        return self.finish_reason in ("stop", "length")

    @property
    def ttft(self) -> float:
        """Seconds to the first token in the user's hands."""
        first = self.tokens[0]
        if self.delivered is not None and self.held_back >= sum(time <= self.delivered for time in self.tokens):
            first = self.delivered  # it was among those held back
        return first - self.arrival

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None for a single token."""
        if len(self.tokens) < 2:
            return None
        return (self.tokens[-1] - self.tokens[0]) / (len(self.tokens) - 1)

    @property
    def gaps(self) -> list[float]:
        """Seconds between consecutive tokens."""
        return [after - before for before, after in zip(self.tokens, self.tokens[1:], strict=False)]

    @property
    def e2e(self) -> float:
        """Seconds from arrival to the last token in the user's hands."""
        return max(self.tokens[-1], self.delivered or 0.0) - self.arrival

    def meets(self, slo: dict[str, float]) -> bool:
        """True when every limit of `slo` (seconds) holds; a single token counts as TPOT 0 and ITL 0."""
        values = {
            "ttft": self.ttft,
            "tpot": self.tpot or 0.0,
            "e2e": self.e2e,
            "itl": max(self.gaps, default=0.0),
        }
        return all(values[name] <= limit for name, limit in slo.items())


def request_times(trace: RunTrace) -> dict[int, RequestTimes]:
    """Walk the trace once and collect each request's times, by id."""
    times = _no_times(trace)
    for entry in trace.entries():
        _take_times(times, entry)
    _take_events(times, trace)
    return times


def _no_times(trace: RunTrace) -> dict[int, RequestTimes]:
    return {
        info.id: RequestTimes(info.id, info.arrival_time, finish_reason=info.finish_reason)
        for info in trace.requests.values()
    }


def _take_times(times: dict[int, RequestTimes], entry: StepTrace) -> None:
    ends = (entry.end,) if entry.stretch is None else entry.stretch.ends
    for id, _, _, _, sampled, token, margin in entry.rows:
        request = times[id]
        if request.admitted is None:
            request.admitted = entry.start
        if sampled:
            request.tokens += ends
        if token is not None:
            request.output.append(token)
        if margin is not None:
            request.margins.append(margin)


def _take_events(times: dict[int, RequestTimes], trace: RunTrace) -> None:
    for event in trace.events():
        if event.kind == "admitted":
            request = times[event.request]
            request.admitted = min(event.time, event.time if request.admitted is None else request.admitted)
        elif event.kind == "delivered":
            times[event.request].delivered, times[event.request].held_back = event.time, event.value


def _gaps(done: Iterable[RequestTimes]) -> Counter[float]:
    """How often each gap between two tokens occurs; requests that decode together share most of theirs."""
    gaps: Counter[float] = Counter()
    for times in done:
        gaps.update(map(sub, times.tokens[1:], times.tokens))
    return gaps


@dataclass(slots=True)
class Report:
    """Latency, throughput, goodput and work of one run. Times in seconds, rates per second of the run's clock."""

    requests: int = 0
    finished: int = 0
    refused: dict[int, str] = field(default_factory=dict)  # request -> why it can never run here
    duration_s: float = 0.0  # first arrival to last step's end
    output_tokens: int = 0
    output_tokens_per_s: float = 0.0
    total_tokens_per_s: float = 0.0  # prompt and output tokens of finished requests
    requests_per_s: float = 0.0
    ttft_s: Distribution = field(default_factory=Distribution)
    tpot_s: Distribution = field(default_factory=Distribution)
    itl_s: Distribution = field(default_factory=Distribution)
    e2e_s: Distribution = field(default_factory=Distribution)
    queueing_s: Distribution = field(default_factory=Distribution)  # arrival to being let into the batch
    goodput_rps: float | None = None  # requests/s meeting every limit of `slo`; None without one
    slo: dict[str, float] = field(default_factory=dict)
    computed_tokens: int = 0
    padded_tokens: int = 0
    recomputed_tokens: int = 0
    cached_tokens: int = 0
    dropped_tokens: int = 0
    wasted_slots: int = 0  # rows computed for requests that had already finished
    peak_blocks: int = 0
    kv_waste: float | None = None  # share of the slots in used blocks that held no token, mean over steps
    preemptions: int = 0
    steps: int = 0
    mean_batch: float = 0.0  # requests computed per step, finished ones not counted
    mfu: float | None = None  # share of the peak FLOP/s while steps ran; None where no peak is known
    mbu: float | None = None  # share of the peak bandwidth while steps ran; None where no peak is known
    peak_source: str | None = None  # whose peaks these are
    utilisation: float = 0.0  # share of the duration in which a step was in flight
    clock: str = ""
    measured: bool = True  # False: step times come from a model of a machine
    tokens_sha256: str | None = None
    axes: dict[str, str] = field(default_factory=dict)
    trace: RunTrace = field(default_factory=RunTrace, repr=False)
    times: dict[int, RequestTimes] = field(default_factory=dict, repr=False)

    @classmethod
    def from_trace(cls, trace: RunTrace, slo: dict[str, float] | None = None) -> Report:
        """Compute every metric. Raises BadPolicy for an unknown SLO name."""
        slo = slo or {}
        unknown = sorted(set(slo) - set(SLO_NAMES))
        if unknown:
            raise BadPolicy(f"SLO on {', '.join(unknown)}; there are {', '.join(SLO_NAMES)} (seconds)")
        for name, limit in slo.items():
            real(limit, f"an SLO on {name} (s) of")
        report = cls(trace=trace, times=_no_times(trace), slo=slo, axes=trace.meta.get("axes", {}))
        report.clock = trace.meta.get("clock", "")
        report.peak_source = trace.meta.get("peak_source")
        report.measured = trace.meta.get("measured", True)
        report._walk()
        report._latency()
        report.tokens_sha256 = digest(report.times)
        return report

    def _latency(self) -> None:
        done = [times for times in self.times.values() if times.done]
        self.requests, self.finished = len(self.times), len(done)
        infos = self.trace.requests.values()
        self.refused = {info.id: info.error or "" for info in infos if info.finish_reason == "refused"}
        if not self.times or not len(self.trace):
            return
        self.output_tokens = sum(len(times.tokens) for times in self.times.values())
        prompts = sum(self.trace.requests[times.id].num_prompt for times in done)
        outputs = sum(len(times.tokens) for times in done)
        per_second = 1 / self.duration_s if self.duration_s else 0.0  # a price list may charge nothing
        self.output_tokens_per_s = self.output_tokens * per_second
        self.total_tokens_per_s = (prompts + outputs) * per_second
        self.requests_per_s = len(done) * per_second
        self.ttft_s = Distribution.of(times.ttft for times in done)
        self.tpot_s = Distribution.of(times.tpot for times in done if times.tpot is not None)
        self.itl_s = Distribution.weighted(_gaps(done))
        self.e2e_s = Distribution.of(times.e2e for times in done)
        self.queueing_s = Distribution.of(
            times.admitted - times.arrival for times in done if times.admitted is not None
        )
        if self.slo:
            self.goodput_rps = sum(times.meets(self.slo) for times in done) * per_second

    def _walk(self) -> None:
        """One pass over the trace: everybody's times, and the work done."""
        if self.times and len(self.trace):
            self.duration_s = self.trace[-1].end - min(times.arrival for times in self.times.values())
        busy, rows, waste, with_slots, flops, moved = 0.0, 0, 0.0, 0, 0.0, 0.0
        for step in self.trace.entries():
            _take_times(self.times, step)
            repeat, carried = step.repeat, step.carried
            self.steps += repeat
            self.computed_tokens += step.computed * repeat
            self.padded_tokens += step.padded * repeat
            self.recomputed_tokens += step.recomputed
            self.wasted_slots += carried * repeat
            busy += step.end - step.start
            rows += (len(step.rows) - carried) * repeat
            flops, moved = flops + step.flops, moved + step.bytes
            most = step.slots
            for slots, resident in step.occupancy():
                most = max(most, slots)
                if slots:
                    waste += 1 - resident / slots
                    with_slots += 1
            self.peak_blocks = max(self.peak_blocks, most // self.trace.meta.get("block_size", 1))
        for event in self.trace.events():
            self.cached_tokens += event.value if event.kind == "admitted" else 0
            self.dropped_tokens += event.value if event.kind == "preempted" else 0
            self.preemptions += event.kind == "preempted"
        _take_events(self.times, self.trace)
        self.kv_waste = waste / with_slots if with_slots else None
        self.mean_batch = rows / self.steps if self.steps else 0.0
        busy = min(busy, self.duration_s)  # several lanes overlap
        self.mfu = self._share(flops, "peak_flops", busy)
        self.mbu = self._share(moved, "peak_bytes_per_s", busy)
        self.utilisation = min(1.0, busy / self.duration_s) if self.duration_s else 0.0

    def _share(self, amount: float, peak: str, seconds: float) -> float | None:
        """`amount` over what the machine could have done in `seconds`; None where either is unknown."""
        possible = seconds * (self.trace.meta.get(peak) or 0.0)
        return amount / possible if amount and possible else None

    @property
    def outputs(self) -> dict[int, list[int]]:
        """Output token ids by request id."""
        return {times.id: times.output for times in self.times.values()}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the trace, ready for JSON."""
        skip = {"trace", "times"}
        record = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in skip}
        for name, value in record.items():
            if isinstance(value, Distribution):
                record[name] = {item.name: getattr(value, item.name) for item in fields(value)}
        return record

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict` as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def summary(self) -> str:
        """A short table for people; returned, so that a notebook cell shows it when printed."""
        return summary_table({"run": self})

    def timeline(self) -> Any:
        """Requests × time as a plotly figure."""
        return self.figure("timeline")

    def figure(self, name: str, **options: Any) -> Any:
        """One of `lab.live.figures` of this run: timeline, step_composition, kv_occupancy, efficiency, roofline, …

        Raises BadPolicy for a name that is not there.
        """
        from lab.live import figures

        if name not in figures.OF_ONE_RUN:
            raise BadPolicy(f"figure {name!r} is not known; there are {', '.join(figures.OF_ONE_RUN)}")
        return getattr(figures, name)(self, **options)


def digest(times: dict[int, RequestTimes]) -> str | None:
    """SHA-256 of every request's output tokens in request order; None where no token was computed."""
    if not any(request.output for request in times.values()):
        return None
    text = json.dumps([[request, times[request].output] for request in sorted(times)])
    return hashlib.sha256(text.encode()).hexdigest()
