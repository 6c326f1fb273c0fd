"""The block map of the past: pictures of the books taken while a run goes on, thinned so that they stay small.

Taking one costs the driving thread time, so it pauses after each for some hundred times as long as that took: at most
1 % of the run. With steps of some milliseconds every step has its picture; a simulation in fast motion has some.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from dataclasses import replace

from lab.engine import Engine
from lab.live.blocks import Holding, holding

LIMIT = 400_000  # numbers kept in all pictures of one policy
PATIENCE = 200  # pictures after steps, and pictures of steps under way, may each cost 1 / PATIENCE of the time


class Film:
    """`take` is for the driving thread, everything else for any thread."""

    def __init__(self, limit: int = LIMIT, patience: float = PATIENCE):
        self.limit, self.patience = limit, patience
        self.latest: Holding | None = None
        self.fullest: Holding | None = None  # the one with most blocks in tables
        self._most = -1
        self._lock = threading.Lock()
        self._frames: list[Holding] = []
        self._size, self._due = 0, {"after": 0.0, "before": 0.0}

    def __len__(self) -> int:
        return len(self._frames)

    def take(self, engine: Engine, index: int, whatever_it_costs: bool = False) -> None:
        """Keep a picture of the books after step `index`, if it is time for one."""
        began = time.perf_counter()
        if began < self._due["after"] and not whatever_it_costs:
            return
        frame = holding(engine, index)
        with self._lock:
            self.latest = frame
            held = sum(sum(share.runs[1::2]) for share in frame.shares)
            if held > self._most:
                self._most, self.fullest = held, frame
            last = self._frames[-1].index if self._frames else None
            if last == index:
                self._size -= self._frames.pop().size
            self._frames.append(frame)
            self._size += frame.size
            if self._size > self.limit:
                self._thin()
        self._wait("after", began)

    def peek(self, engine: Engine, index: int) -> None:
        """Show the books as they are while step `index` runs, if it is time for that; nothing is kept."""
        began = time.perf_counter()
        if began >= self._due["before"]:
            self.latest = replace(holding(engine, index), under_way=True)
            self._wait("before", began)

    def _wait(self, kind: str, began: float) -> None:
        ended = time.perf_counter()
        self._due[kind] = ended + self.patience * (ended - began)

    def at(self, index: int) -> Holding | None:
        """The last picture taken at or before step `index`, None where there is none."""
        with self._lock:
            place = bisect_right(self._frames, index, key=lambda frame: frame.index)
            return self._frames[place - 1] if place else None

    def _thin(self) -> None:
        """Every second picture goes, the latest stays."""
        self._frames = self._frames[-1 - 2 * ((len(self._frames) - 1) // 2) :: 2]
        self._size = sum(frame.size for frame in self._frames)
