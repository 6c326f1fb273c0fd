"""CUDA graphs for decode steps: hundreds of kernel launches recorded once, then started by one call.

A graph computes a fixed shape on fixed memory. So a step of decodes is padded up to the next batch size that has
a graph (its bucket), its arrays are copied into the graph's own, and the graph is replayed. Padding rows really
pass through every layer: a bucket is chosen to waste little.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lab.execution.cuda_inputs import pack, pad_decodes, padding_rows, unpack
from lab.execution.inputs import StepInputs

#: Batch sizes with a graph: dense where a padding row costs most.
BUCKETS = (1, 2, 4, *range(8, 257, 8))

Forward = Callable[[StepInputs], Tensor]
Replay = Callable[[], None]
#: Runs its argument once while recording; returns what replays it, and the result that every replay renews in place.
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]


class Shape(NamedTuple):
    """What one graph is for: so many rows, with block tables of this width."""

    rows: int
    width: int


@dataclass(slots=True)
class Captured:
    """One graph, the memory it reads its inputs from, and the logits [rows, vocab] that it leaves behind."""

    flat: Tensor
    replay: Replay
    logits: Tensor
    replays: int = 0


def bucket_for(rows: int, limit: int = BUCKETS[-1]) -> int | None:
    """The smallest batch size with a graph that holds `rows`; None beyond `limit`."""
    place = bisect_left(BUCKETS, rows)
    return BUCKETS[place] if place < len(BUCKETS) and BUCKETS[place] <= limit else None


class DecodeGraphs:
    """Graphs of one runner on one stream, recorded ahead or when their shape first comes up (that step is slow then).

    `forward` computes a step whose arrays are on `device`. `width_for` maps the block tables' width to the one that
    is recorded: a backend that reads no further than a context can have a single width, one that gathers has some.
    """

    def __init__(
        self,
        forward: Forward,
        device: torch.device,
        block_size: int,
        width_for: Callable[[int], int],
        capture: Capture | None = None,
    ):
        self.forward, self.device, self.block_size, self.width_for = forward, device, block_size, width_for
        self.capture = capture or CudaCapture(device)
        self.captured: dict[Shape, Captured] = {}

    def shape_for(self, inputs: StepInputs) -> Shape | None:
        """The graph that serves this step; None for one that is not purely decodes, or too large."""
        rows, width = inputs.tables.shape
        bucket = bucket_for(rows)
        if bucket is None or not inputs.one_token_each or len(inputs.last) != rows:
            return None
        return Shape(bucket, self.width_for(width))

    def run(self, inputs: StepInputs) -> Tensor | None:
        """Logits [rows, vocab] of a step (host arrays), valid until the next one; None where no graph serves it."""
        shape = self.shape_for(inputs)
        if shape is None:
            return None
        padded = pad_decodes(inputs, *shape, self.block_size)
        graph = self.captured.get(shape) or self.record(padded)
        flat = pack(padded)
        graph.flat.copy_(flat.pin_memory() if self.device.type == "cuda" else flat, non_blocking=True)
        graph.replay()
        graph.replays += 1
        return graph.logits[: len(inputs.last)]

    def record_ahead(self, largest: int, scratch: int) -> None:
        """Record the buckets up to `largest` rows, for a backend that needs a single width."""
        for rows in BUCKETS:
            if rows <= largest:
                self.record(padding_rows(rows, self.width_for(1), self.block_size, scratch))

    def record(self, padded: StepInputs) -> Captured:
        """Record the graph of this shape. Its keys and values go where `padded` says, as in any step."""
        flat = pack(padded).to(self.device, copy=True)
        static = unpack(flat, padded)
        replay, logits = self.capture(lambda: self.forward(static))
        graph = self.captured[Shape(*padded.tables.shape)] = Captured(flat, replay, logits)
        return graph


_one_recording = threading.Lock()  # threads of several lanes may want to record at once


class CudaCapture:
    """Records on the GPU. The graphs recorded here share one pool of memory, since only one of them runs at a time."""

    def __init__(self, device: torch.device):
        self.device = device
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        current = torch.cuda.current_stream(self.device)
        default = torch.cuda.default_stream(self.device)  # nothing can be recorded on this one
        aside = torch.cuda.Stream(self.device) if current == default else current
        graph = torch.cuda.CUDAGraph()
        with _one_recording:
            aside.wait_stream(current)
            with torch.cuda.stream(aside):  # libraries set themselves up on first use, which must not be recorded
                for _ in range(2):
                    work()
            current.wait_stream(aside)
            with torch.cuda.graph(graph, pool=self.pool, stream=aside, capture_error_mode="thread_local"):
                logits = work()
        return graph.replay, logits
