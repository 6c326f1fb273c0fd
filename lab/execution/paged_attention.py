"""Attention over block tables in place: cuts a step into units of work and hands them to the cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

import numba
import numpy as np
import torch
from torch import Tensor

from lab.execution import paged_kernel
from lab.execution.inputs import StepInputs

#: Below this many (query token x key) pairs per layer a second thread costs more than it saves.
WORTH_SHARING = 2000


@dataclass(slots=True)
class Units:
    """A step cut into (row, first token, tokens, kv head); core i owns units [bounds[i], bounds[i + 1])."""

    units: np.ndarray  # [n, 4]
    bounds: np.ndarray  # [cores + 1]
    tables: np.ndarray  # [rows, blocks]
    visible: np.ndarray  # [tokens]


class PagedAttention:
    """Nothing is gathered into rectangles and nothing is padded (see paged_kernel.py)."""

    name = "paged_cpu"

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> Units:
        """Cut rows into tiles, most expensive first, and deal them out to the cores in turn."""
        costed = []
        visible = inputs.visible.numpy()
        for row, (first, stop) in enumerate(zip(inputs.row_starts, inputs.row_starts[1:], strict=False)):
            for token in range(first, stop, paged_kernel.TILE):
                count = min(paged_kernel.TILE, stop - token)
                cost = count * int(visible[token + count - 1])
                costed += [(cost, row, token, count, head) for head in range(num_kv_heads)]
        costed.sort(reverse=True)
        cores = torch.get_num_threads() if sum(unit[0] for unit in costed) >= WORTH_SHARING else 1
        hands = [costed[core::cores] for core in range(cores)]
        units = np.array([unit[1:] for hand in hands for unit in hand], np.int64).reshape(-1, 4)
        bounds = np.cumsum([0, *map(len, hands)])
        return Units(units, bounds, inputs.tables.numpy(), visible)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: Units) -> Tensor:
        queries = queries.contiguous()
        output = torch.empty_like(queries)
        arrays = (work.tables, work.visible, queries.numpy(), keys.numpy(), values.numpy(), output.numpy())
        if len(work.bounds) == 2:
            paged_kernel.attend_serial(work.units, *arrays)
        elif openmp():
            paged_kernel.attend_parallel(work.units, work.bounds, *arrays)
        else:
            hands = zip(work.bounds, work.bounds[1:], strict=False)
            jobs = [_pool().submit(paged_kernel.attend_serial, work.units[a:b], *arrays) for a, b in hands]
            for job in jobs:
                job.result()
        return output


@lru_cache(maxsize=1)
def openmp() -> bool:
    """True where numba can share work through OpenMP, false where a thread pool of Python's must do (slower).

    numba's own fallback ("workqueue") ends the process when two threads use it at once, as two engines do.
    """
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    numba.config.THREADING_LAYER = "omp"
    return True


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="attention")
