"""A step of the CPU recorded once, then repeated by one call: what a CUDA graph is to a GPU.

A step is some 270 jobs for the cores (cores.py) with Python in between, which takes 10 to 50 µs each time to make
a tensor and pass addresses on: with one request a fifth of the step, with sixteen a tenth. But the addresses are the
same in every step, if only the memory is. So while a step is recorded its intermediate results come from a `Workspace`
that stays, and every job is noted down; a replay hands the whole list to the cores. Another batch lies in the same
memory and takes the same jobs, with other numbers of tokens, sampled tokens and units of attention: unlike a CUDA
graph, one recording serves decodes and prompts of all sizes.

Only jobs are repeated. Whatever torch itself would have to compute calls `not_recorded`, and the step stays unrecorded.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.errors import LabError
from lab.execution.inputs import StepInputs

#: The tensors of StepInputs with one number for each token.
VECTORS = ("token_ids", "positions", "visible", "blocks", "slots")

#: Tokens of the largest step that is recorded: beyond, what Python takes is nothing beside the products.
LARGEST = 256

#: What a job's rows are: all tokens of the step, the sampled ones, or units of attention.
TOKENS, SAMPLED, UNITS = range(3)


class NotRecorded(LabError):
    """A step that cannot be replayed; the message says what in it is not a job."""


class Workspace:
    """Memory for intermediate results, the same for all recordings of a runner, since one of them runs at a time.

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
        view = piece[:]
        weakref.finalize(view, pieces.append, piece)  # torch holds the view for as long as any tensor shows it
        return torch.from_numpy(view)[:rows].view(shape)


class Recording:
    """The jobs of one step, in order. The rows are word 0 of every job's arguments, and may be others in a replay.

    What else the arguments name must stay alive and in its place: weights and pool, which the `forward` of
    RecordedSteps holds, a step's own inputs, and the units of attention, which `cut` holds.
    """

    def __init__(self, workspace: Workspace):
        self.workspace = workspace
        self.rows_are = TOKENS
        #: Cuts attention anew for a step that is replayed; returns the number of units.
        self.cut: Callable[[StepInputs], int] = lambda inputs: 0
        self._noted: list[tuple[int, array, int, int, int]] = []

    def add(self, function: int, words: array, each: int, times: int, rows_are: int | None) -> None:
        self._noted.append((function, words, each, times, self.rows_are if rows_are is None else rows_are))

    def close(self) -> None:
        """Lay everything out for replays."""
        functions, words, each, times, rows_are = zip(*self._noted, strict=True)
        self._words = np.concatenate([np.frombuffer(some, np.int64) for some in words])
        self._rows = np.cumsum([0, *map(len, words[:-1])])  # places of the words 0
        self._jobs = np.empty((len(functions), 3), np.int64)  # function, address of the arguments, units
        self._jobs[:, 0], self._jobs[:, 1] = functions, self._words.ctypes.data + 8 * self._rows
        self._each, self._times, self._rows_are = np.array(each), np.array(times), np.array(rows_are)

    def replay(self, tokens: int, sampled: int, units: int = 0) -> None:
        """Run all jobs for these numbers, of tokens at most LARGEST."""
        from lab.execution.cores import all_cores

        rows = np.array((tokens, sampled, units))[self._rows_are]
        self._words[self._rows] = rows
        self._jobs[:, 2] = -(-rows // self._each) * self._times
        all_cores().replay(self._jobs)


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


def from_here_sampled() -> None:
    """The jobs that follow are for sampled tokens only."""
    if (made := current()) is not None:
        made.rows_are = SAMPLED


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


class _Step(NamedTuple):
    """A recorded step: its own inputs, with room for LARGEST tokens, its jobs, and the logits [LARGEST, vocab]."""

    inputs: StepInputs
    jobs: Recording
    logits: Tensor


class RecordedSteps:
    """Steps of one runner, recorded for each width of block tables (a power of two) when it first comes up.

    Of use to one thread at a time.
    """

    def __init__(self, forward: Callable[[StepInputs], Tensor]):
        self.forward = forward
        self.workspace = Workspace()
        self.replays = 0
        self._steps: dict[int, _Step] = {}

    def run(self, inputs: StepInputs) -> Tensor | None:
        """Logits [sampled, vocab] of a step, valid until the next one; None for one that is not recorded.

        Raises NotRecorded where no step of this model can be.
        """
        rows, width = inputs.tables.shape
        tokens, sampled = len(inputs.token_ids), len(inputs.last)
        if max(rows, tokens) > LARGEST:
            return None
        wide = 1 << (width - 1).bit_length()
        step = self._steps.get(wide)
        if step is None:
            return self._record(wide, inputs) if sampled else None  # the address of nothing would be noted
        _copy(inputs, step.inputs)
        step.jobs.replay(tokens, sampled, step.jobs.cut(inputs))
        self.replays += 1
        return step.logits[:sampled]

    @torch.inference_mode(False)  # tensors made inside could not be written to outside
    def _record(self, wide: int, inputs: StepInputs) -> Tensor:
        """Compute this step, and note down how."""
        rows, tokens, sampled = len(inputs.tables), len(inputs.token_ids), len(inputs.last)
        own = replace(inputs, **{name: torch.zeros(LARGEST, dtype=torch.int64) for name in (*VECTORS, "last")})
        own.tables = torch.zeros(LARGEST, wide, dtype=torch.int64)
        _copy(inputs, own)
        vectors = {name: getattr(own, name)[:tokens] for name in VECTORS}
        first = replace(own, **vectors, last=own.last[:sampled], tables=own.tables[:rows])
        with recording(self.workspace) as jobs:
            logits = self.forward(first)
        jobs.close()
        whole = logits.as_strided((LARGEST, logits.shape[1]), (logits.stride(0), 1))
        self._steps[wide] = _Step(own, jobs, whole)
        return logits


def _copy(inputs: StepInputs, to: StepInputs) -> None:
    """Write a step's arrays over the first places of another's, and the scratch block behind its block tables."""
    rows, width = inputs.tables.shape
    for name in (*VECTORS, "last"):
        source = getattr(inputs, name)
        getattr(to, name)[: len(source)] = source
    to.tables[:rows, :width] = inputs.tables
    to.tables[:rows, width:] = inputs.scratch
