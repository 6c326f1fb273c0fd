"""One request on the screen: a row of coloured bars, kept short by stretching a bar that goes on unchanged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lab.live.style import CODE
from lab.trace import RequestInfo

PREFILL = CODE["prefill"]


def rounded(value: float | None) -> float | None:
    """Times are sent to a tenth of a millisecond."""
    return None if value is None else round(value, 4)


@dataclass(slots=True)
class Bar:
    """A stretch of one kind in a request's row. `real` and `padding` are the tokens it computed, `cached` those that
    it found computed and so did not have to."""

    kind: int
    start: float
    end: float
    real: int = 0
    padding: int = 0
    cached: int = 0

    def wire(self) -> list[float]:
        """What the browser gets."""
        return [self.kind, round(self.start, 4), round(self.end, 4), self.real, self.padding, self.cached]


@dataclass(slots=True)
class RowView:
    """One request on the screen."""

    info: RequestInfo
    state: str = "waiting"  # as in Request.status, then "finished" or "delivered", "aborted", "refused"
    since: float = 0.0
    output: int = 0
    first: float | None = None  # first token in the user's hands
    last: float | None = None  # last token computed
    began: float | None = None  # first token computed
    longest_gap: float = 0.0  # between two tokens computed one after the other
    gaps: list[float] = field(default_factory=list)  # between its tokens, until it has ended
    cached: int = 0  # tokens found computed, over all admissions
    found: int = 0  # of these, what the next bar is to show
    bars: list[Bar] = field(default_factory=list)
    fresh: int = 0  # bars from here on have not been sent
    sent_by_hand: bool = False
    judged: bool = False  # against the limits

    def add(self, bar: Bar) -> None:
        """Append, or stretch the last bar when it goes on without a change."""
        if bar.real and self.found:
            bar.cached, self.found = self.found, 0
        last = self.bars[-1] if self.bars else None
        # On a wall clock the engine's own bookkeeping lies between two steps: no more than a sliver of the next one.
        sliver = max(1e-9, 0.25 * (bar.end - bar.start))
        joins = last is not None and last.kind == bar.kind and abs(last.end - bar.start) <= sliver
        if joins and bool(last.padding) == bool(bar.padding) and bar.kind != PREFILL and not bar.cached:
            last.end, last.real, last.padding = bar.end, last.real + bar.real, last.padding + bar.padding
            self.fresh = min(self.fresh, len(self.bars) - 1)
        elif bar.end > bar.start:
            self.bars.append(bar)

    def wire(self, whole: bool) -> list[Any]:
        """[id, arrival, prompt, max_tokens, state, since, output, first, last, from, bars, by hand, cached]."""
        begin = 0 if whole else min(self.fresh, len(self.bars))
        info = self.info
        head = [info.id, round(info.arrival_time, 4), info.num_prompt, info.max_tokens, self.state]
        numbers = [rounded(self.since), self.output, rounded(self.first), rounded(self.last)]
        return [*head, *numbers, begin, [bar.wire() for bar in self.bars[begin:]], self.sent_by_hand, self.cached]
