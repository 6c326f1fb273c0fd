"""What arrives when. The first policy of a session writes the story, the others replay it: same requests, same times.

Arrivals are fixed in units of mean gaps; the load says how fast these pass. Moving the load slider therefore
stretches the rest of the current gap and all later ones at once, and changes nothing that has already happened.
"""

from __future__ import annotations

import random
import threading
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.request import Request, SamplingParams
from lab.workload import Workload

#: Ids of prompts sent by hand start here, so that they never meet those of the workload.
SENT_IDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """From `time` (seconds) and `unit` (gaps passed) on, `rate` gaps pass per second."""

    time: float
    unit: float
    rate: float

    def when(self, unit: float) -> float:
        """Seconds at which `unit` is reached at this pace."""
        return self.time + (unit - self.unit) * (1.0 / self.rate)


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt somebody sent while the session ran."""

    time: float
    id: int
    prompt: Sequence[int] | int  # ids or a length
    sampling: SamplingParams

    def request(self) -> Request:
        """A fresh copy for one policy."""
        if isinstance(self.prompt, int):
            return Request(self.id, None, self.sampling, self.time, num_prompt=self.prompt)
        return Request(self.id, self.prompt, self.sampling, self.time)


class Story:
    """All arrivals of a session. Any thread may ask and change; what has happened by then stays as it was."""

    def __init__(self, work: Workload, model: Any, endless: bool = False, seconds: float | None = None, seed: int = 0):
        self._templates = work.requests(model)
        self._units = [spec.arrival for spec in work.specs]
        self._mean = 1.0 if work.rate else self._units[-1] / max(1, len(self._units) - 1) or 1.0
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self.endless, self.seconds = endless, seconds
        self.paces = [Pace(0.0, 0.0, work.rate or 1.0)]
        self.sent: list[Sent] = []

    @property
    def largest(self) -> int:
        """Most tokens a request of the workload can hold."""
        return max(request.max_total for request in self._templates)

    def when(self, index: int) -> float | None:
        """Arrival time of the index-th request, None after the last one."""
        if index >= len(self._units):
            if not self.endless:
                return None
            with self._lock:
                while index >= len(self._units):
                    self._units.append(self._units[-1] + self._mean * self._draw.expovariate(1.0))
        unit = self._units[index]
        pace = next(pace for pace in reversed(self.paces) if pace.unit <= unit)
        time = pace.when(unit)
        return None if self.seconds is not None and time > self.seconds else time

    def request(self, index: int) -> Request:
        """A fresh copy of the index-th request."""
        template, arrival = self._templates[index % len(self._templates)], self.when(index)
        assert arrival is not None
        late = None if template.deadline is None else arrival + template.deadline - template.arrival_time
        own = {name: [] for name in ("output", "margins", "block_table", "host_table", "contents")}
        return replace(template, id=index, arrival_time=arrival, deadline=late, **own)

    def start_at(self, rate: float) -> None:
        """The pace from the beginning on."""
        self.paces = [Pace(0.0, 0.0, rate)]

    def rate(self, now: float) -> float:
        """Gaps per second at `now`."""
        return next(pace for pace in reversed(self.paces) if pace.time <= now).rate

    def long_prompt(self, tokens: int) -> Sequence[int] | int:
        """The workload's prompts strung together to that many token ids; the number where prompts have no ids."""
        ids: list[int] = []
        for template in self._templates:
            if template.prompt is None:
                return tokens
            ids += template.prompt
        return (ids * (tokens // len(ids) + 1))[:tokens]

    def set_rate(self, now: float, rate: float) -> bool:
        """From `now` on `rate` gaps pass per second. True when this changes the pace."""
        with self._lock:
            pace = next(pace for pace in reversed(self.paces) if pace.time <= now)
            if pace.rate == rate and pace is self.paces[-1]:
                return False
            unit = pace.unit + (now - pace.time) * pace.rate
            self.paces = [pace for pace in self.paces if pace.time < now] + [Pace(now, unit, rate)]
            return True

    def send(self, now: float, prompt: Sequence[int] | int, sampling: SamplingParams) -> Sent:
        """Add a prompt by hand."""
        with self._lock:
            entry = Sent(now, SENT_IDS + len(self.sent), prompt, sampling)
            insort(self.sent, entry, key=lambda sent: sent.time)
            return entry


class Reader:
    """One policy's place in the story."""

    def __init__(self, story: Story):
        self.story, self._next, self._sent = story, 0, 0

    @property
    def next_time(self) -> float | None:
        """When the next request arrives, None when none will."""
        times = [self.story.when(self._next)]
        times += [entry.time for entry in self.story.sent[self._sent : self._sent + 1]]
        return min((time for time in times if time is not None), default=None)

    def peek(self, now: float) -> list[Request]:
        """Copies of those that have arrived by `now` and were not handed out yet. Any thread; for showing only."""
        found, index = [], self._next
        while (time := self.story.when(index)) is not None and time <= now:
            found.append(self.story.request(index))
            index += 1
        return found

    def due(self, now: float) -> list[Request]:
        """Fresh requests that have arrived by `now`, in order."""
        ready = []
        while (time := self.story.when(self._next)) is not None and time <= now:
            ready.append(self.story.request(self._next))
            self._next += 1
        while self._sent < len(self.story.sent) and self.story.sent[self._sent].time <= now:
            entry = self.story.sent[self._sent]
            ready.append(entry.request())
            self._sent += 1
        return sorted(ready, key=lambda request: request.order)
