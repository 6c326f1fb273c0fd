"""Attention with torch's own kernel (scaled_dot_product_attention), which runs on every device and in every type.

It cannot walk block tables, so contexts are gathered first: what flash-attn (flash_attention.py) does without.
Rows with one token are one rectangle, as wide as the longest context; longer rows are computed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.execution.attention import gather
from lab.execution.device import send
from lab.execution.inputs import StepInputs

#: A long prompt is cut into pieces of this many tokens: one mask [tokens, context] at a time is all that is held.
PIECE = 1024


@dataclass(slots=True)
class Piece:
    """Consecutive tokens [first, stop) of one row, and how many of its keys each sees."""

    first: int
    stop: int
    context: int  # keys that any of them sees
    table: Tensor  # [blocks of the context]
    visible: Tensor  # [tokens]


@dataclass(slots=True)
class SdpaWork:
    """A step sorted by shape. `singles` is None when all rows are single tokens, in order."""

    singles: Tensor | None  # [rows with one token] packed index of the token
    tables: Tensor  # [rows with one token, blocks]
    mask: Tensor  # [rows with one token, 1, 1, context]
    pieces: list[Piece]


class SdpaAttention:
    """Needs no kernel of ours and no package beside torch."""

    name = "sdpa"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> SdpaWork:
        sizes = [b - a for a, b in zip(inputs.row_starts, inputs.row_starts[1:], strict=False)]
        rows = [row for row, size in enumerate(sizes) if size == 1]
        pieces = [
            self._piece(inputs, row, first, block_size)
            for row, size in enumerate(sizes)
            for first in (range(inputs.row_starts[row], inputs.row_starts[row + 1], PIECE) if size > 1 else ())
        ]
        if not pieces:
            return SdpaWork(None, inputs.tables, _mask(inputs.visible, inputs.tables, block_size), pieces)
        widest = max((-(-inputs.contexts[row] // block_size) for row in rows), default=0)
        places = torch.tensor([rows, [inputs.row_starts[row] for row in rows]], dtype=torch.int64)
        row_of, token_of = send(places, inputs.tables.device)
        tables = inputs.tables[row_of, :widest]
        return SdpaWork(token_of, tables, _mask(inputs.visible[token_of], tables, block_size), pieces)

    def _piece(self, inputs: StepInputs, row: int, first: int, block_size: int) -> Piece:
        stop = min(first + PIECE, inputs.row_starts[row + 1])
        behind = inputs.row_starts[row] + inputs.real[row] - stop  # real tokens of the row after this piece
        context = inputs.contexts[row] - max(0, behind)
        table = inputs.tables[row, : -(-context // block_size)]
        return Piece(first, stop, context, table, inputs.visible[first:stop])

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: SdpaWork) -> Tensor:
        if not work.pieces:
            return self._singles(queries, keys, values, work)
        output = torch.empty_like(queries)
        if len(work.tables):
            output[work.singles] = self._singles(queries[work.singles], keys, values, work)
        for piece in work.pieces:
            mine = slice(piece.first, piece.stop)
            output[mine] = _attend_piece(queries[mine], keys, values, piece)
        return output

    def _singles(self, queries: Tensor, keys: Tensor, values: Tensor, work: SdpaWork) -> Tensor:
        """Rows of one token: the query heads of a group take the place of the tokens of a prompt."""
        rows, heads, dim = queries.shape
        q = queries.view(rows, keys.shape[1], -1, dim)  # [rows, kv heads, group, dim]
        k, v = (pool[work.tables].transpose(1, 2).flatten(2, 3) for pool in (keys, values))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=work.mask).reshape(rows, heads, dim)


def _mask(visible: Tensor, tables: Tensor, block_size: int) -> Tensor:
    slots = torch.arange(tables.shape[1] * block_size, device=tables.device)
    return (slots < visible[:, None])[:, None, None]


def _attend_piece(queries: Tensor, keys: Tensor, values: Tensor, piece: Piece) -> Tensor:
    """[tokens, heads, dim]; the kernels that take a mask want as many key/value heads as query heads."""
    group = queries.shape[1] // keys.shape[1]
    k, v = (gather(pool, piece.table)[:, : piece.context].repeat_interleave(group, dim=0) for pool in (keys, values))
    mask = torch.arange(piece.context, device=k.device) < piece.visible[:, None]
    mixed = F.scaled_dot_product_attention(queries.transpose(0, 1)[None], k[None], v[None], attn_mask=mask)
    return mixed[0].transpose(0, 1)
