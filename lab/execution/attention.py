"""Five ways to attend over a block-paged cache. They agree to rounding; they differ in what they waste.

reference   one row at a time in plain torch: slow, obvious, the oracle of the others
padded      one real rectangle [rows, widest new, widest context], masked: what a padded batch costs
paged_cpu   walks every block table in place, nothing gathered, nothing padded (paged_attention.py)
sdpa        torch's kernel over gathered contexts: any device, any type (sdpa.py)
flash       flash-attn's kernel over the block tables, on a GPU (flash_attention.py)

PagedAttention was introduced by Kwon et al. 2023 (vLLM, arXiv:2309.06180).
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from lab.errors import ModelError
from lab.execution.device import send
from lab.execution.inputs import StepInputs


class Attention(Protocol):
    """A backend holds no state between steps: `prepare` runs once per step, `attend` once per layer."""

    name: str

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> Any:
        """Whatever all layers of this step share."""
        ...

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: Any) -> Tensor:
        """Attention of queries [tokens, heads, dim], the step's own keys and values being stored already.

        `keys` and `values` [blocks, kv heads, slots, dim] are one layer of the pool.
        Returns [tokens, heads, dim].
        """
        ...


class ReferenceAttention:
    """Row by row: gather the row's context through its block table, mask what lies ahead, softmax, average."""

    name = "reference"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> StepInputs:
        return inputs

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: StepInputs) -> Tensor:
        output = torch.empty_like(queries)
        for row, context in enumerate(work.contexts):
            first, stop = work.row_starts[row], work.row_starts[row + 1]
            k = gather(keys, work.tables[row])[:, :context]  # [kv heads, context, dim]
            v = gather(values, work.tables[row])[:, :context]
            q = by_kv_head(queries[first:stop], k.shape[0])  # [kv heads, tokens, group, dim]
            scores = torch.einsum("htgd,hcd->htgc", q, k) * q.shape[-1] ** -0.5
            ahead = torch.arange(context, device=k.device) >= work.visible[first:stop, None]  # [tokens, context]
            weights = scores.masked_fill(ahead[None, :, None], float("-inf")).softmax(dim=-1)
            mixed = torch.einsum("htgc,hcd->thgd", weights, v)
            output[first:stop] = mixed.reshape(stop - first, *queries.shape[1:])
        return output


def by_kv_head(queries: Tensor, num_kv_heads: int) -> Tensor:
    """[tokens, heads, dim] -> [kv heads, tokens, group, dim]: query heads sorted to the keys they read."""
    tokens, heads, dim = queries.shape
    return queries.view(tokens, num_kv_heads, heads // num_kv_heads, dim).transpose(0, 1)


def gather(pool: Tensor, table: Tensor) -> Tensor:
    """Keys or values [kv heads, slots of the table, dim] of one row, in one tensor."""
    return pool[table].transpose(0, 1).flatten(1, 2)


class PaddedAttention:
    """Every row is as long as the longest, with as many new tokens as the widest: masked, but not skipped."""

    name = "padded"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> _Rectangle:
        return _Rectangle(inputs, block_size)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: _Rectangle) -> Tensor:
        _, heads, dim = queries.shape
        rows, wide, context = work.rows, work.new, work.width
        kv_heads = keys.shape[1]
        group = heads // kv_heads
        q = queries.new_zeros(rows * wide, heads, dim)
        q[work.place] = queries
        q = q.view(rows, wide, kv_heads, group, dim).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * wide, dim)
        k = keys.mT[work.tables].permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, dim, -1)[..., :context]
        v = values[work.tables].transpose(1, 2).reshape(rows, kv_heads, -1, dim)[:, :, :context]
        scores = (q @ k).mul_(dim**-0.5)  # [rows, kv heads, group * new, context]
        scores.view(rows, kv_heads, group, wide, context).masked_fill_(work.hidden, float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        mixed = mixed.view(rows, kv_heads, group, wide, dim).permute(0, 3, 1, 2, 4)
        return mixed.reshape(rows * wide, heads, dim)[work.place]


class _Rectangle:
    """Where each packed token sits in [rows, new], and which keys [rows, 1, 1, new, width] it must not see."""

    def __init__(self, inputs: StepInputs, block_size: int):
        sizes = [b - a for a, b in zip(inputs.row_starts, inputs.row_starts[1:], strict=False)]
        self.rows, self.new, self.width = len(sizes), max(sizes), inputs.width
        device = inputs.visible.device
        place = torch.cat([torch.arange(n) + row * self.new for row, n in enumerate(sizes)])
        self.place = send(place, device)
        visible = torch.ones(self.rows * self.new, dtype=torch.int64, device=device)
        visible[self.place] = inputs.visible
        self.hidden = torch.arange(self.width, device=device) >= visible.view(self.rows, 1, 1, self.new, 1)
        blocks = -(-self.width // block_size)
        missing = blocks - inputs.tables.shape[1]
        self.tables = torch.nn.functional.pad(inputs.tables, (0, missing), value=inputs.scratch)


#: Names a runner takes on every computer (`flash` needs a GPU). `paged_cpu` is imported on demand: numba is large and
#: may be missing.
BACKENDS = ("paged_cpu", "reference", "padded", "sdpa")


def make_attention(name: str) -> Attention:
    """The backend of that name; `paged_cpu` becomes `reference` where numba is not installed."""
    if name == "reference":
        return ReferenceAttention()
    if name == "padded":
        return PaddedAttention()
    if name == "sdpa":
        from lab.execution.sdpa import SdpaAttention

        return SdpaAttention()
    if name == "flash":
        from lab.execution.flash_attention import FlashAttention

        return FlashAttention()
    if name != "paged_cpu":
        raise ModelError(f"there is no attention backend {name!r}; there are {', '.join(BACKENDS)}, flash")
    try:
        from lab.execution.paged_attention import PagedAttention
    except ImportError:
        return ReferenceAttention()
    return PagedAttention()
