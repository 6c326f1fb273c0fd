"""A decode step of the CPU recorded once, then repeated by one call: what a CUDA graph is to a GPU.

Such a step is some 270 jobs for the cores (cores.py) with Python in between, which takes 10 to 50 µs each time to make
a tensor and pass addresses on: with one request a fifth of the step, with sixteen a tenth. But the addresses are the
same in every step, if only the memory is. So while a step is recorded its intermediate results come from a `Workspace`
that stays, and every job is noted down; a replay hands the whole list to the cores.

Only jobs are repeated. Whatever torch itself would have to compute calls `not_recorded`, and the step stays unrecorded.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import numpy as np
import torch
from torch import Tensor

from lab.errors import LabError

#: Rows of the largest step that is recorded: beyond, what Python takes is nothing beside the products.
LARGEST = 64


class NotRecorded(LabError):
    """A step that cannot be replayed; the message says what in it is not a job."""


class Workspace:
    """Memory for intermediate results, the same for all recordings of one thread, since one of them runs at a time.

    A tensor's memory is used again, within a recording, once nobody holds it any more.
    """

    def __init__(self) -> None:
        self._all: dict[int, list[np.ndarray]] = {}  # [LARGEST, numbers per row], by numbers per row
        self._free: dict[int, list[np.ndarray]] = {}

    def begin(self) -> None:
        """Nothing of an earlier recording is needed any more."""
        self._free = {wide: list(pieces) for wide, pieces in self._all.items()}

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        rows, wide, free = shape[0], prod(shape[1:]), self._free
        if rows > LARGEST:
            raise NotRecorded(f"{rows} rows in a recorded step: there is room for {LARGEST}")
        pieces = free.setdefault(wide, [])
        if not pieces:
            pieces.append(np.empty((LARGEST, wide), np.float32))
            self._all.setdefault(wide, []).append(pieces[-1])
        piece = pieces.pop()
        view = piece[:rows]
        weakref.finalize(view, pieces.append, piece)  # torch holds the view for as long as any tensor shows it
        return torch.from_numpy(view).view(shape)


class Recording:
    """The jobs of one step, in order."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.before: list[Callable[[], None]] = []  # called before each replay
        self._jobs: list[tuple[int, array, int]] = []

    def add(self, function: int, words: array, units: int) -> None:
        self._jobs.append((function, words, units))

    def jobs(self) -> np.ndarray:
        """[jobs, 3]: address of the callback, address of its arguments (kept alive by this recording), units."""
        return np.array([(function, words.buffer_info()[0], units) for function, words, units in self._jobs], np.int64)


_local = threading.local()


def current() -> Recording | None:
    """What this thread is recording."""
    return getattr(_local, "recording", None)


@contextmanager
def recording(workspace: Workspace) -> Iterator[Recording]:
    """Note down the jobs that this thread runs inside, as well as running them."""
    workspace.begin()
    _local.recording = Recording(workspace)
    try:
        yield _local.recording
    finally:
        _local.recording = None


def empty(*shape: int) -> Tensor:
    """float32, not initialised: from the workspace while a step is recorded."""
    made = current()
    return torch.empty(shape, dtype=torch.float32) if made is None else made.workspace.empty(shape)


def dense(x: Tensor) -> Tensor:
    """`x` in one piece: itself, or a copy, which cannot be recorded."""
    if x.is_contiguous():
        return x
    not_recorded("a copy of a tensor")
    return x.contiguous()


def not_recorded(what: str) -> None:
    """Raise NotRecorded if a recording is under way; `what` is not done by a job."""
    if current() is not None:
        raise NotRecorded(f"{what} is not a job of the cores")


class CpuCapture:
    """Records steps for DecodeGraphs (see graphs.py), all of them in one workspace.

    What `work` refers to is kept alive by its replay, and must not be moved: the jobs read and write at its addresses.
    """

    def __init__(self) -> None:
        self.workspace = Workspace()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        from lab.execution.cores import all_cores

        with recording(self.workspace) as made:
            result = work()
        jobs, held = made.jobs(), (made, work)

        def replay() -> None:
            for refresh in held[0].before:
                refresh()
            all_cores().replay(jobs)

        return replay, result
