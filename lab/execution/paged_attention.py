"""Attention over block tables in place: cuts a step into units of work, which the cores claim one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from lab.execution.cores import all_cores
from lab.execution.inputs import StepInputs
from lab.execution.paged_kernel import TILE, attend_unit
from lab.execution.recording import LARGEST, UNITS, current, dense, empty

_UNIT = attend_unit.address
ROWS_PER_CORE = 4  # from which on rows are shared among the cores, not heads


@dataclass(slots=True)
class Units:
    """A step cut into (row, first token, tokens, kv head, kv heads), the most expensive first."""

    units: np.ndarray  # [n, 5]
    tables: np.ndarray  # [rows, blocks]
    visible: np.ndarray  # [tokens]
    number: int  # of units, the first ones
    addresses: tuple[int, ...] = field(init=False)  # as the kernel wants them

    def __post_init__(self) -> None:
        units, tables, visible = (array.ctypes.data for array in (self.units, self.tables, self.visible))
        self.addresses = units, tables, self.tables.shape[1], visible


class PagedAttention:
    """Nothing is gathered into rectangles and nothing is padded (see paged_kernel.py)."""

    name = "paged_cpu"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> Units:
        """Cut rows into tiles; a core that claims late then finds cheap units, and all finish together.

        A tile of many tokens takes one key/value head, whose scores stay in the cache. Single tokens of many rows take
        all heads, which lie side by side in a block: memory gives those more quickly than three places one by one.
        """
        visible = np.ascontiguousarray(inputs.visible.numpy(), np.int64)
        tables = np.ascontiguousarray(inputs.tables.numpy(), np.int64)
        units = _cut(inputs, num_kv_heads)
        number = len(units)
        if (recording := current()) is not None:
            units = np.resize(units, (LARGEST * num_kv_heads, 5))

            def renew(step: StepInputs) -> int:
                made = _cut(step, num_kv_heads)
                units[: len(made)] = made
                return len(made)

            recording.cut = renew
        return Units(units, tables, visible, number)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: Units) -> Tensor:
        assert keys.mT.is_contiguous() and values.is_contiguous(), "one layer of the pool lies in one piece"
        queries = dense(queries)
        output = empty(*queries.shape)
        blocks, kv_heads, slots, dim = keys.shape
        pointers = queries.data_ptr(), keys.data_ptr(), values.data_ptr(), output.data_ptr()
        arguments = (*work.addresses, *pointers, queries.shape[1], dim, blocks, kv_heads, slots)
        all_cores().run_rows(_UNIT, work.number, arguments, rows_are=UNITS)
        return output


def _cut(inputs: StepInputs, num_kv_heads: int) -> np.ndarray:
    """The units [n, 5] of a step, the most expensive first."""
    rows, visible = len(inputs.tables), inputs.visible.numpy()
    heads = num_kv_heads if rows >= ROWS_PER_CORE * all_cores().count else 1
    if len(visible) == rows and inputs.one_token_each:
        return _single_tokens(visible, heads, num_kv_heads)
    costed = []
    for row, (first, stop) in enumerate(zip(inputs.row_starts, inputs.row_starts[1:], strict=False)):
        of_unit = heads if stop - first == 1 else 1
        for token in range(first, stop, TILE):
            count = min(TILE, stop - token)
            cost = count * int(visible[token + count - 1]) * of_unit
            costed += [(cost, row, token, count, head, of_unit) for head in range(0, num_kv_heads, of_unit)]
    costed.sort(reverse=True)
    return np.array([unit[1:] for unit in costed], np.int64).reshape(-1, 5)


def _single_tokens(visible: np.ndarray, heads: int, num_kv_heads: int) -> np.ndarray:
    """Units of rows with one token each, `heads` key/value heads at a time; the longest contexts come first."""
    parts = num_kv_heads // heads
    order = np.repeat(np.argsort(-visible, kind="stable"), parts)
    units = np.empty((len(order), 5), np.int64)
    units[:, 0] = units[:, 1] = order
    units[:, 2], units[:, 3], units[:, 4] = 1, np.tile(np.arange(0, num_kv_heads, heads), len(visible)), heads
    return units
