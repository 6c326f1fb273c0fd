"""Weights packed for the matrix kernel, and the product itself, shared among the cores. Needs numba."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution import gemm_kernel
from lab.execution.cores import all_cores
from lab.execution.gemm_kernel import PANEL
from lab.execution.recording import dense, empty, not_recorded

_UNIT = gemm_kernel.multiply_unit.address


class Panels:
    """A weight [out, in] as panels (see gemm_kernel.py); calling it maps float32 [rows, in] to [rows, out], and
    adds the result to `onto`, where given.

    With `half` the numbers are stored as float16 and every product is still computed in float32: half the memory to
    read, and weights rounded to 11 bits.
    """

    lanes = gemm_kernel.LANES  # float32 in a vector
    __slots__ = ("out", "depth", "panels", "half", "_panels", "_address")

    def __init__(self, weight: Tensor, half: bool = False):
        self.out, self.depth = weight.shape
        self.panels = -(-self.out // PANEL)
        self.half = half and gemm_kernel.HAS_HALF  # elsewhere the rounded numbers are kept as float32
        weight = weight.half() if half else weight
        padded = F.pad(weight, (0, 0, 0, PANEL * self.panels - self.out))
        panels = padded.view(-1, PANEL, self.depth).transpose(1, 2)  # [panels, in, 32]
        self._panels = panels.to(torch.float16 if self.half else torch.float32).contiguous()
        self._address = self._panels.data_ptr()

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        self._check(x, "multiplied with", self.depth)
        if onto is not None:
            self._check(onto, "added to", self.out)
            if len(onto) != len(x):
                raise ModelError(f"a product of {len(x)} rows cannot be added to {len(onto)}")
        cores, x = all_cores(), dense(x)
        rows, wide = x.shape[0], PANEL * self.panels
        if self.out != wide:
            not_recorded("a product that fills no panel")  # its rows do not lie side by side
        in_place = onto is not None and self.out == wide and onto.is_contiguous() and onto.data_ptr() != x.data_ptr()
        y = onto if in_place else empty(rows, wide)
        addresses = x.data_ptr(), self.depth, self._address, self.panels, y.data_ptr()
        arguments = (*addresses, in_place, self.half, cores.count)
        cores.run_rows(_UNIT, rows, arguments, gemm_kernel.ROWS, self.panels)
        if onto is not None and not in_place:
            not_recorded("a product added to what is not in one piece")
            return onto.add_(y[:, : self.out])
        return y if self.out == wide else y[:, : self.out]

    def _check(self, given: Tensor, what: str, columns: int) -> None:
        """The kernel reads and writes at plain addresses: what does not fit must not get there."""
        if given.dim() != 2 or given.shape[1] != columns or given.dtype != torch.float32 or given.device.type != "cpu":
            raise ModelError(
                f"a weight of {self.out} x {self.depth} is {what} float32 of {columns} columns on the CPU, not with "
                f"{tuple(given.shape)} in {given.dtype} on {given.device}"
            )


def is_fast() -> bool:
    """Whether this processor has the fused multiply-add that the kernel is made of (x86 since 2013, every ARM64)."""
    return gemm_kernel.HAS_FMA
