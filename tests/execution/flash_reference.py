"""What flash-attn 2.8's flash_attn_varlen_func documents and checks, in plain torch: the oracle of our arguments.

Sources: its docstring (flash_attn/flash_attn_interface.py) for the meaning of every argument, and the TORCH_CHECKs
of mha_varlen_fwd (csrc/flash_attn/flash_api.cpp) for what is refused. Written one query at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor


def checked(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int, block_table: Tensor
) -> None:
    """Raise RuntimeError as the extension does."""

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise RuntimeError(message)

    blocks, page, kv_heads, dim = k.shape
    sequences = len(cu_q) - 1
    require(page % 256 == 0, "Paged KV cache block size must be divisible by 256")
    require(dim <= 256 and q.shape[1] % kv_heads == 0, "head dimension or number of heads")
    require(q.shape[2] == dim and v.shape == k.shape, "shape of q, k or v")
    require(sequences > 0, "batch size must be positive")
    for tensor in (cu_q, cu_k, block_table):
        require(tensor.dtype == torch.int32, "must have dtype int32")
        require(tensor.stride(-1) == 1, "must be contiguous")
    for tensor in (q, k, v):
        require(tensor.stride(-1) == 1, "must have contiguous last dimension")
    require(cu_k.shape == cu_q.shape, "shape of cu_seqlens_k")
    require(block_table.shape[0] == sequences, "shape of block_table")
    # not checked by the extension, which would read or write out of bounds
    require(cu_q[0] == 0 and cu_k[0] == 0 and cu_q[-1] == len(q), "lengths")
    require(int(cu_q.diff().max()) <= max_q and int(cu_k.diff().max()) <= max_k, "a sequence beyond its maximum")
    require(max_k <= block_table.shape[1] * page, "a maximum beyond the block table")
    require(0 <= int(block_table.min()) and int(block_table.max()) < blocks, "block id")


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    block_table: Tensor,
) -> Tensor:
    """q [tokens, heads, dim]; k, v [blocks, slots, kv heads, dim]. Returns [tokens, heads, dim]."""
    checked(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table)
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[2]
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for sequence, table in enumerate(block_table.tolist()):
        tokens = starts_q[sequence + 1] - starts_q[sequence]
        context = starts_k[sequence + 1] - starts_k[sequence]
        keys = k[table].flatten(0, 1)[:context].repeat_interleave(group, dim=1).float()  # [context, heads, dim]
        values = v[table].flatten(0, 1)[:context].repeat_interleave(group, dim=1).float()
        for token in range(tokens):
            place = starts_q[sequence] + token
            seen = context - tokens + token + 1 if causal else context  # aligned to the bottom right corner
            if seen <= 0:
                out[place] = 0  # "If the row of the mask is all zero, the output will be zero."
                continue
            scores = torch.einsum("hd,khd->hk", q[place].float(), keys[:seen]) * q.shape[-1] ** -0.5
            out[place] = torch.einsum("hk,khd->hd", scores.softmax(-1), values[:seen]).to(q.dtype)
    return out
