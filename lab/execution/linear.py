"""y = x Wᵀ (+ bias), with W stored in the order this CPU multiplies fastest.

A plain `F.linear` is slow for the two to sixteen rows of a decode step, which would bend the batching curve a
learner sees. Three ways, the first that is available is taken:

kernel   our own (gemm_kernel.py): fast for few rows and many, and a row's result is the same bits in every batch
onednn   oneDNN's blocked weight layout, which torch reaches only through private operators, probed by multiplying
plain    `F.linear`; also for whatever is not float32 on the CPU
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution.recording import not_recorded

#: Rows that oneDNN is told to expect. One packing serves every batch size; a hint of 1 picks a worse layout.
ROWS_HINT = 64

Pack = Callable[[Tensor], Tensor]
Multiply = Callable[[Tensor, Tensor], Tensor]


@lru_cache(maxsize=1)
def onednn_ops() -> tuple[Pack, Multiply] | None:
    """The private (pack, multiply) pair, or None where this build lacks them or they do not multiply."""
    try:
        reorder = torch.ops.mkldnn._reorder_linear_weight.default
        pointwise = torch.ops.mkldnn._linear_pointwise.default

        def pack(weight: Tensor) -> Tensor:
            return reorder(weight, ROWS_HINT)

        def multiply(x: Tensor, packed: Tensor) -> Tensor:
            return pointwise(x, packed, None, "none", [], "")

        x, weight = torch.linspace(-1, 1, 48).view(3, 16), torch.linspace(-1, 1, 128).view(8, 16)
        if torch.allclose(multiply(x, pack(weight)), F.linear(x, weight), atol=1e-5):
            return pack, multiply
    except (AttributeError, RuntimeError, TypeError):
        pass
    return None


@lru_cache(maxsize=1)
def kernel() -> type | None:
    """The class of packed weights for our own kernel, or None where numba is missing or the processor has no FMA."""
    try:
        from lab.execution.gemm import Panels, is_fast
    except ImportError:
        return None
    return Panels if is_fast() else None


#: Ways to multiply, in the order of preference; `LAB_LINEAR` names another one, to compare them.
WAYS = ("kernel", "onednn", "plain")


class Linear:
    """A weight [out, in] and perhaps a bias [out]; calling it maps [tokens, in] to [tokens, out].

    `storage="fp16"` keeps the numbers as float16 and computes in float32 (half the memory to read, other results).
    `way` says how the product is computed (see the module); where the asked one is not to be had, the next one is.
    Raises ModelError for a storage or a way that does not exist.
    """

    __slots__ = ("shape", "way", "bias", "_weight", "_multiply")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, storage: str = "fp32", way: str | None = None):
        way = way or os.environ.get("LAB_LINEAR") or WAYS[0]
        if storage not in ("fp32", "fp16") or way not in WAYS:
            raise ModelError(f"a linear layer stored as {storage!r} by way of {way!r}: there are fp32, fp16; {WAYS}")
        self.shape, self.bias = tuple(weight.shape), bias
        half = storage == "fp16"
        usable = WAYS[WAYS.index(way) :] if weight.device.type == "cpu" and weight.dtype == torch.float32 else ()
        if "kernel" in usable and kernel():
            self.way, self._weight, self._multiply = "kernel", kernel()(weight, half), None
            return
        if half and usable:
            weight = weight.half().float()  # the same numbers, without the saving
        if "onednn" in usable and onednn_ops():
            pack, multiply = onednn_ops()
            self.way, self._weight, self._multiply = "onednn", pack(weight), multiply
        else:
            self.way, self._weight, self._multiply = "plain", weight.contiguous(), F.linear

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """x [tokens, in] -> [tokens, out]; added in place to `onto` [tokens, out] and returned there, where given."""
        if self.way == "kernel":
            y = self._weight(x, onto)
            if self.bias is None:
                return y
            not_recorded("a bias")
            return y.add_(self.bias)
        not_recorded(f"a product by way of {self.way}")
        y = F.linear(x, self._weight, self.bias) if self.way == "plain" else self._multiply(x, self._weight)
        if self.bias is not None and self.way != "plain":
            y.add_(self.bias)
        return y if onto is None else onto.add_(y)
