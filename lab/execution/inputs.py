"""A StepPlan as arrays: one packed batch of tokens, where each writes, and how much each may see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.errors import BlockError
from lab.plan import Row, StepPlan

#: What padding positions read as their token. Its result is never used.
PADDING_TOKEN = 0


@dataclass(slots=True)
class StepInputs:
    """Row r owns tokens [row_starts[r], row_starts[r + 1]): its real tokens first, then its padding.

    A real token at position p sees the p + 1 keys of its own request. A padding token sees what the row's last
    real token sees; in a row without real tokens (a finished request) it sees as many slots of the scratch block.
    Tables are filled up with the scratch block, so every entry may be read.
    """

    token_ids: Tensor  # [tokens]
    positions: Tensor  # [tokens] absolute
    visible: Tensor  # [tokens] keys each token attends to, >= 1
    blocks: Tensor  # [tokens] block its key and value go to
    slots: Tensor  # [tokens] slot inside that block
    tables: Tensor  # [rows, blocks of the longest context]
    row_starts: list[int]  # [rows + 1]
    real: list[int]  # [rows] real tokens of the row
    contexts: list[int]  # [rows] keys the row's last real token attends to
    width: int  # positions of the longest row, padding included: the width of a padded rectangle
    last: Tensor  # [sampling rows] packed index of the token whose logits are wanted
    scratch: int  # the block that padding tokens write to

    @property
    def one_token_each(self) -> bool:
        """True when every row computes a single token: a step of nothing but decodes."""
        return self.row_starts[-1] == len(self.row_starts) - 1 and 0 not in self.real


def build_inputs(plan: StepPlan, block_size: int, num_blocks: int) -> StepInputs:
    """Lay out `plan`, which has at least one row, for one forward pass; block `num_blocks` is the scratch block.

    Raises BlockError where a row computes tokens that its block table has no room for.
    """
    rows = plan.rows
    start = np.array([row.start for row in rows])
    real = np.array([row.num_tokens for row in rows])
    size = real + np.array([row.padding for row in rows])
    row_starts = np.concatenate([[0], np.cumsum(size)])
    contexts = np.maximum(start + real, 1)

    owner = np.repeat(np.arange(len(rows)), size)  # [tokens] row of each token
    offset = np.arange(row_starts[-1]) - row_starts[owner]
    is_real = offset < real[owner]
    positions = start[owner] + offset
    tables = _tables(rows, contexts, block_size, num_blocks)
    block_index = np.minimum(positions // block_size, tables.shape[1] - 1)  # padding may lie beyond every table
    sampling = np.array([row.samples for row in rows])
    assert real[sampling].all(), "a row without tokens cannot sample"
    as_tensor = torch.from_numpy
    return StepInputs(
        token_ids=torch.tensor(_token_ids(rows), dtype=torch.int64),
        positions=as_tensor(positions),
        visible=as_tensor(np.where(is_real, positions + 1, contexts[owner])),
        blocks=as_tensor(np.where(is_real, tables[owner, block_index], num_blocks)),
        slots=as_tensor(positions % block_size),
        tables=as_tensor(tables),
        row_starts=row_starts.tolist(),
        real=real.tolist(),
        contexts=contexts.tolist(),
        width=int(max((start + size).max(), 1)),
        last=as_tensor((row_starts[:-1] + real - 1)[sampling]),
        scratch=num_blocks,
    )


def _token_ids(rows: list[Row]) -> list[int]:
    ids: list[int] = []
    for row in rows:
        ids += row.request.tokens(row.start, row.start + row.num_tokens)
        ids += [PADDING_TOKEN] * row.padding
    return ids


def _tables(rows: list[Row], contexts: np.ndarray, block_size: int, num_blocks: int) -> np.ndarray:
    """Block tables [rows, blocks of the longest context], checked against the pool."""
    needed = -(-contexts // block_size)
    tables = np.full((len(rows), needed.max()), num_blocks)
    for index, row in enumerate(rows):
        if row.num_tokens == 0:
            continue
        held = row.request.block_table[: needed[index]]
        if len(held) < needed[index]:
            raise BlockError(
                f"request {row.request.id} computes up to token {contexts[index]} and needs {needed[index]} blocks "
                f"of {block_size}; its block table holds {len(held)}"
            )
        if min(held) < 0 or max(held) >= num_blocks:
            raise BlockError(f"request {row.request.id} holds blocks {held}; the pool has {num_blocks}")
        tables[index, : len(held)] = held
    return tables
