"""The pool of a GPU: block copies inside it on the main stream, swapping to pinned host memory beside it.

"out": the main stream copies the leaving blocks to a staging tensor (fast, in GPU memory), so that the step may
overwrite them at once; a side stream then carries the staging tensor to the host while the step computes.
"in": the side stream, which by then has finished every earlier "out", brings blocks into a staging tensor; only
the main stream's use of them waits. On the CPU both streams are the program itself, and the same lines run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby

import torch
from torch import Tensor

from lab.execution.kv_cache import PagedKV
from lab.plan import BlockCopy


class Streams:
    """A side stream, and the two ways in which it and the current stream wait for one another."""

    def __init__(self, device: torch.device):
        self.side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def on_side(self) -> AbstractContextManager:
        return nullcontext() if self.side is None else torch.cuda.stream(self.side)

    def side_waits(self) -> None:
        """What the side stream gets from now on starts after what the current stream has been given."""
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream(self.side.device))

    def main_waits(self) -> None:
        if self.side is not None:
            torch.cuda.current_stream(self.side.device).wait_stream(self.side)

    def used_by_side(self, staging: Tensor) -> None:
        """Keep torch from handing out this memory again before the side stream is done with it."""
        if self.side is not None:
            staging.record_stream(self.side)

    def used_by_main(self, staging: Tensor) -> None:
        if self.side is not None:
            staging.record_stream(torch.cuda.current_stream(self.side.device))


class DeviceKV(PagedKV):
    """PagedKV on a device. `host` [host blocks, keys and values, layers, kv heads, slots, dim]: one block, one piece,
    which is what a copy to pinned memory needs in order not to wait.
    """

    def _make_host_store(self) -> None:
        layers, _, *block = self.keys.shape
        device = self.keys.device
        pinned = device.type == "cuda"
        self.host = torch.zeros(self.num_host_blocks, 2, layers, *block, dtype=self.keys.dtype, pin_memory=pinned)
        self.streams = Streams(device)

    def apply(self, copies: list[BlockCopy]) -> None:
        """As PagedKV.apply. Returns at once; whatever the current stream does next sees the copies done."""
        for copy in copies:
            self.check(copy)
        for kind, run in _runs(copies):
            {"copy": self._within, "out": self._out, "in": self._in}[kind](run)

    def _within(self, copies: list[BlockCopy]) -> None:
        for copy in copies:  # one by one: a block may be a target first and a source later
            self.keys[:, copy.target] = self.keys[:, copy.source]
            self.values[:, copy.target] = self.values[:, copy.source]

    def _out(self, copies: list[BlockCopy]) -> None:
        staged = [torch.stack((self.keys[:, copy.source], self.values[:, copy.source])) for copy in copies]
        self.streams.side_waits()
        with self.streams.on_side():
            for copy, staging in zip(copies, staged, strict=True):
                self.streams.used_by_side(staging)
                self.host[copy.target].copy_(staging, non_blocking=True)

    def _in(self, copies: list[BlockCopy]) -> None:
        with self.streams.on_side():
            staged = [self.host[copy.source].to(self.keys.device, non_blocking=True) for copy in copies]
        self.streams.main_waits()
        for copy, staging in zip(copies, staged, strict=True):
            self.streams.used_by_main(staging)
            self.keys[:, copy.target], self.values[:, copy.target] = staging


def _runs(copies: list[BlockCopy]) -> Iterator[tuple[str, list[BlockCopy]]]:
    """Neighbours of the same kind, in order."""
    return ((kind, list(run)) for kind, run in groupby(copies, key=lambda copy: copy.kind))
