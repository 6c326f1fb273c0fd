"""Attention over block tables in place: cuts a step into units of work, which the cores claim one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from lab.execution.cores import all_cores
from lab.execution.inputs import StepInputs
from lab.execution.paged_kernel import TILE, attend_unit
from lab.execution.recording import current, dense, empty

_UNIT = attend_unit.address
ROWS_PER_CORE = 4  # from which on rows are shared among the cores, not heads


@dataclass(slots=True)
class Units:
    """A step cut into (row, first token, tokens, kv head, kv heads), the most expensive first."""

    units: np.ndarray  # [n, 5]
    tables: np.ndarray  # [rows, blocks]
    visible: np.ndarray  # [tokens]
    number: int = field(init=False)
    addresses: tuple[int, ...] = field(init=False)  # as the kernel wants them

    def __post_init__(self) -> None:
        self.number = len(self.units)
        units, tables, visible = (array.ctypes.data for array in (self.units, self.tables, self.visible))
        self.addresses = units, tables, self.tables.shape[1], visible

    def sort(self) -> None:
        """Put the most expensive first again, after the memory of `visible` was overwritten; for single tokens."""
        self.units[:] = self.units[np.argsort(-self.visible[self.units[:, 1]], kind="stable")]


class PagedAttention:
    """Nothing is gathered into rectangles and nothing is padded (see paged_kernel.py)."""

    name = "paged_cpu"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> Units:
        """Cut rows into tiles; a core that claims late then finds cheap units, and all finish together.

        A tile of many tokens takes one key/value head, whose scores stay in the cache. Single tokens of many rows take
        all heads, which lie side by side in a block: memory gives those more quickly than three places one by one.
        """
        costed = []
        visible = np.ascontiguousarray(inputs.visible.numpy(), np.int64)
        rows = len(inputs.row_starts) - 1
        together = num_kv_heads if rows >= ROWS_PER_CORE * all_cores().count else 1
        for row, (first, stop) in enumerate(zip(inputs.row_starts, inputs.row_starts[1:], strict=False)):
            heads = together if stop - first == 1 else 1
            for token in range(first, stop, TILE):
                count = min(TILE, stop - token)
                cost = count * int(visible[token + count - 1]) * heads
                costed += [(cost, row, token, count, head, heads) for head in range(0, num_kv_heads, heads)]
        costed.sort(reverse=True)
        units = np.array([unit[1:] for unit in costed], np.int64).reshape(-1, 5)
        work = Units(units, np.ascontiguousarray(inputs.tables.numpy(), np.int64), visible)
        if (recording := current()) is not None:
            recording.before.append(work.sort)
        return work

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: Units) -> Tensor:
        assert keys.mT.is_contiguous() and values.is_contiguous(), "one layer of the pool lies in one piece"
        queries = dense(queries)
        output = empty(*queries.shape)
        tokens, heads, dim = queries.shape
        blocks, kv_heads, slots, _ = keys.shape
        pointers = queries.data_ptr(), keys.data_ptr(), values.data_ptr(), output.data_ptr()
        arguments = (*work.addresses, *pointers, tokens, heads, dim, blocks, kv_heads, slots)
        all_cores().run(_UNIT, arguments, work.number)
        return output
