"""What became of a batch: the unit that controllers learn from and that padding waste is counted in.

With static and dynamic batching that unit is the batch: it begins with the step that admits its requests and ends
when none of them runs any more. With continuous batching there are no batches, and the unit is the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lab.trace import StepTrace


@dataclass(slots=True)
class Served:
    """One batch (or one step). Times are seconds on the driver's clock, counters are tokens and rows."""

    start: float
    end: float = 0.0
    requests: set[int] = field(default_factory=set)
    waits: list[float] = field(default_factory=list)  # arrival to start, of each request admitted
    prompts: bool = False  # it computed prompt tokens
    computed: int = 0
    padded: int = 0
    wasted_slots: int = 0  # rows computed for requests that had already finished

    @property
    def size(self) -> int:
        """Requests that took part."""
        return len(self.requests)

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.end - self.start

    @property
    def waited(self) -> float:
        """The longest wait among those it admitted; 0 if it admitted nobody."""
        return max(self.waits, default=0.0)

    @property
    def waste(self) -> float:
        """Share of the computed positions that were padding, carried rows included."""
        return self.padded / (self.computed + self.padded)

    def add(self, step: StepTrace) -> None:
        """Count a step in."""
        self.end = step.end
        for row in step.rows:
            if row.num_tokens:
                self.requests.add(row.request)
                self.prompts |= row.num_tokens > 1 or row.start == 0
        self.computed += step.computed
        self.padded += step.padded
        self.wasted_slots += step.carried


class Watch:
    """Turns steps into `Served` units, whole batches or single steps, and hands each to `show` (if anybody looks)."""

    def __init__(self, show: Callable[[Served], None] | None, batches: bool):
        self.show, self.batches = show, batches
        self.reset()

    def reset(self) -> None:
        """Forget the run so far."""
        self._arrivals: dict[int, float] = {}  # of requests not yet admitted
        self._open: Served | None = None

    def observe(self, step: StepTrace) -> None:
        """Take one step in."""
        if self.show is None:
            return
        waits = self._waits(step)
        if self._open is None or waits or not self.batches:
            self.close()
            self._open = Served(step.start, waits=waits)
        self._open.add(step)
        if not step.running or not self.batches:
            self.close()

    def close(self) -> None:
        """End the present batch although requests of it may still run (an aborted run, the end of a trace)."""
        if self._open is not None:
            self.show(self._open)
            self._open = None

    def _waits(self, step: StepTrace) -> list[float]:
        """How long those have waited who were admitted when the step was planned, for the first time."""
        waits = []
        for event in step.events:
            if event.kind == "arrived":
                self._arrivals[event.request] = event.time
            elif event.kind in ("admitted", "aborted", "refused"):
                arrival = self._arrivals.pop(event.request, None)
                if event.kind == "admitted" and arrival is not None and event.time <= step.start:
                    waits.append(event.time - arrival)
        return waits


def batches(trace: Iterable[StepTrace]) -> list[Served]:
    """The batches of a static or dynamic run in order, with what each wasted."""
    found: list[Served] = []
    watch = Watch(found.append, batches=True)
    for step in trace:
        watch.observe(step)
    watch.close()
    return found
