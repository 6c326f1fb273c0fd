"""What a feed sends to a screen: everything once, then what changed. All numbers of one policy, ready for JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab.live.blocks import wire
from lab.live.rows import rounded
from lab.live.steps import Merged

if TYPE_CHECKING:
    from lab.live.feed import Feed

SENT_STEPS = 240  # records of steps in one message
PATIENCE = 50  # a block map may take this share of the time of the thread that sends it


@dataclass(slots=True)
class Sent:
    """What the other side does not have yet, and what it has."""

    dirty: set[int] = field(default_factory=set)  # requests whose rows have changed
    left: list[int] = field(default_factory=list)  # requests that are shown no longer
    steps: Merged = field(default_factory=lambda: Merged(SENT_STEPS))
    latencies: int = -1  # version of the sample
    frame: Any = None  # the block map it shows
    runs: dict[int, tuple] = field(default_factory=dict)
    due: float = 0.0  # when the next block map may be sent

    def gone(self, request: int) -> None:
        """A row leaves the screen."""
        self.dirty.discard(request)
        self.left.append(request)


def numbers(feed: Feed) -> dict[str, Any]:
    """The metrics of `lab.metrics.Report` so far, under the same names."""
    span = 0.0 if feed.first_arrival is None else feed.last_end - feed.first_arrival
    total = sum(feed.work[kind] for kind in ("prefill", "decode", "padding", "wasted"))
    waste = feed.work["padding"] + feed.work["wasted"]
    peaks = feed.peaks or {}
    return {
        "output_tokens_per_s": feed.tokens / span if span > 0 else None,
        "ttft_p50": feed.ttft.quantile(0.5),
        "ttft_p95": feed.ttft.quantile(0.95),
        "itl_p50": feed.itl.quantile(0.5),
        "itl_p95": feed.itl.quantile(0.95),
        "finished": feed.finished,
        "refused": feed.lost["refused"],
        "aborted": feed.lost["aborted"],
        "losses": losses(feed),
        "arrived": feed.arrived,
        "waste": waste / total if total else None,
        "mean_batch": feed.row_count / feed.steps if feed.steps else None,
        "utilisation": min(1.0, feed.busy / span) if span > 0 else None,
        "preemptions": feed.preemptions,
        "flops_per_s": feed.flops / feed.busy if feed.flops and feed.busy else None,
        "mfu": feed.flops / feed.busy / peaks["flops"] if peaks and feed.flops and feed.busy else None,
        "mbu": feed.bytes / feed.busy / peaks["bytes_per_s"] if peaks and feed.bytes and feed.busy else None,
        "slo": feed.limits.numbers(),
        "steps": feed.steps,
        "span": span,
    }


def losses(feed: Feed) -> str:
    """Who was refused or given up, and why the first one was, in a sentence; empty where all goes well."""
    refused, aborted = feed.lost["refused"], feed.lost["aborted"]
    words = [f"{refused} of {feed.arrived} refused: {feed.reason}"] if refused else []
    return "; ".join(words + ([f"{aborted} of {feed.arrived} given up"] if aborted else []))


def everything(feed: Feed, now: float) -> dict[str, Any]:
    """All that is in view, for one that knows nothing; the books of what was sent stay as they are."""
    rows = [view.wire(whole=True) for view in feed.rows.values()]
    message = _message(feed, now, rows, list(feed.recent), True) | {"gone": []}
    message |= {"ttft": feed.ttft.curve(), "itl": feed.itl.curve()}
    if feed.film.latest is not None:
        message["blocks"] = wire(feed.film.latest)
    return message


def news(feed: Feed, now: float) -> dict[str, Any] | None:
    """What changed since the last call, None when nothing did."""
    sent = feed.sent
    fresh_blocks = feed.film.latest is not sent.frame
    if not (sent.dirty or sent.left or len(sent.steps) or feed.usage.fresh or fresh_blocks):
        return None
    views = [feed.rows[request] for request in sorted(sent.dirty) if request in feed.rows]
    rows = [view.wire(whole=False) for view in views]
    for view in views:
        view.fresh = len(view.bars)
    message = _message(feed, now, rows, list(sent.steps), False) | {"gone": sent.left}
    sent.steps.clear()
    sent.dirty, sent.left = set(), []
    if sent.latencies != feed.ttft.version + feed.itl.version:
        message |= {"ttft": feed.ttft.curve(), "itl": feed.itl.curve()}
        sent.latencies = feed.ttft.version + feed.itl.version
    if fresh_blocks:
        _add_blocks(feed, message)
    feed.series.sent()
    feed.usage.sent()
    return message


def _add_blocks(feed: Feed, message: dict[str, Any]) -> None:
    """The newest block map, unless the last one is too recent for what it costs."""
    sent, began = feed.sent, time.perf_counter()
    if began < sent.due:
        return
    sent.frame = feed.film.latest
    message["blocks"] = wire(sent.frame, sent.runs)
    ended = time.perf_counter()
    sent.due = ended + PATIENCE * (ended - began)


def _message(feed: Feed, now: float, rows: list, steps: list, whole: bool) -> dict[str, Any]:
    message = {"now": rounded(now), "rows": rows, "steps": steps, "work": dict(feed.work)}
    message |= {"series": feed.series.wire(whole), "usage": feed.usage.wire(whole), "peaks": feed.peaks}
    marks = [[rounded(time), text] for time, text in feed.marks]
    return message | {"numbers": numbers(feed), "marks": marks}
