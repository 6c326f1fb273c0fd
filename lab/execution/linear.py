"""y = x Wᵀ, with W stored in the order this CPU multiplies fastest.

A plain `F.linear` is slow for the two to sixteen rows of a decode step, which would bend the batching curve a
learner sees. oneDNN has a blocked weight layout for that, which torch reaches only through private operators;
they are probed once, by multiplying, and `F.linear` takes over where they are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

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


class Linear:
    """A weight [out, in] without bias; calling it maps [tokens, in] to [tokens, out]."""

    __slots__ = ("weight", "shape", "_multiply")

    def __init__(self, weight: Tensor):
        ops = onednn_ops() if weight.device.type == "cpu" and weight.dtype == torch.float32 else None
        self.shape = tuple(weight.shape)
        self.weight = ops[0](weight) if ops else weight.contiguous()
        self._multiply: Multiply = ops[1] if ops else F.linear

    def __call__(self, x: Tensor) -> Tensor:
        return self._multiply(x, self.weight)
