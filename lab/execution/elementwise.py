"""What is done between matrix products: norm, RoPE and the write to the cache, the gated activation, the best token.

In torch these are some twenty small operations a layer, each of which passes over memory and costs microseconds to
start: with few rows about a sixth of a decode step. On the CPU each of the four is therefore one pass of our own
(elementwise_kernel.py); the plain versions here say what is meant, and serve everything else (a GPU, other types).
A row's result does not depend on the other rows in either.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution import rope
from lab.execution.inputs import StepInputs
from lab.execution.kv_cache import PagedKV
from lab.execution.recording import dense, empty, not_recorded


@lru_cache(maxsize=1)
def kernels() -> ModuleType | None:
    """The compiled versions, None where numba is missing."""
    try:
        from lab.execution import elementwise_kernel
    except ImportError:
        return None
    return elementwise_kernel


def _compiled(x: Tensor) -> bool:
    if x.device.type == "cpu" and x.dtype == torch.float32 and kernels() is not None:
        return True
    not_recorded("an operation of torch")
    return False


def take(table: Tensor, ids: Tensor) -> Tensor:
    """The rows of table [n, wide] that `ids` [rows] name -> [rows, wide]. ModelError for an id outside the table."""
    if not _compiled(table):
        return F.embedding(ids, table)
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(table):
        raise ModelError(f"ids from {int(ids.min())} to {int(ids.max())} in a table of {len(table)}")
    table, ids = dense(table), dense(ids)
    y = empty(len(ids), table.shape[1])
    _run("take_unit", len(ids), (table.data_ptr(), ids.data_ptr(), y.data_ptr(), y.shape[1]))
    return y


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [tokens, 1, dim / 2] of each position [tokens] times each frequency [dim / 2]."""
    if not _compiled(frequencies):
        return rope.rotation(positions, frequencies)
    positions, frequencies = dense(positions), dense(frequencies)
    cos, sin = (empty(len(positions), 1, len(frequencies)) for _ in range(2))
    tensors = (positions, frequencies, cos, sin)
    _run("rotation_unit", len(positions), (*(t.data_ptr() for t in tensors), len(frequencies)))
    return cos, sin


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [tokens, hidden] over its root mean square, times weight [hidden] (RMSNorm, arXiv:1910.07467)."""
    if not _compiled(x):
        return F.rms_norm(x, weight.shape, weight, eps)
    x, y = dense(x), empty(*x.shape)
    _run("norm_unit", x.shape[0], (x.data_ptr(), weight.data_ptr(), y.data_ptr(), x.shape[1], _bits(eps)))
    return y


def place(heads: Tensor, angles: tuple[Tensor, Tensor], cache: PagedKV, layer: int, inputs: StepInputs) -> Tensor:
    """Turn queries and keys by their positions, store keys and values in the cache; returns the queries.

    `heads` [tokens, query heads + key heads + value heads, dim] -> queries [tokens, query heads, dim].
    """
    kv_heads = cache.keys.shape[2]
    num_heads = heads.shape[1] - 2 * kv_heads
    if not _compiled(heads):
        turned, values = heads.split((num_heads + kv_heads, kv_heads), dim=1)
        queries, keys = rope.rotate(turned, angles).split((num_heads, kv_heads), dim=1)
        cache.write(layer, keys, values, inputs)
        return queries
    heads = dense(heads)
    keys, values = cache.keys[layer], cache.values[layer]
    tokens, _, dim = heads.shape
    queries = empty(tokens, num_heads, dim)
    cos, sin = (dense(angle) for angle in angles)
    blocks, slots = dense(inputs.blocks), dense(inputs.slots)
    pointers = (heads, cos, sin, blocks, slots, queries, keys, values)
    sizes = (num_heads, kv_heads, dim, keys.shape[0], keys.shape[2], *keys.stride()[2:])
    _run("place_unit", tokens, (*(tensor.data_ptr() for tensor in pointers), *sizes))
    return queries


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) times up; they lie side by side: [tokens, 2 wide] -> [tokens, wide] (SwiGLU, arXiv:2002.05202)."""
    if not _compiled(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)
    gate_up = dense(gate_up)
    rows, wide = gate_up.shape
    y = empty(rows, wide // 2)
    _run("gated_unit", rows, (gate_up.data_ptr(), y.data_ptr(), wide // 2))
    return y


def best_two(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Ids [rows] of the largest scores [rows, wide], the first among equals, and the best two values [rows, 2].

    May overwrite the scores, which must be numbers. The second of a single score is -inf.
    """
    if not _compiled(scores):
        best, ids = scores.max(dim=-1)
        second = scores.scatter_(1, ids[:, None], float("-inf")).amax(dim=-1)
        return ids, torch.stack((best, second), dim=1)
    scores = scores.contiguous()
    ids = torch.empty(len(scores), dtype=torch.int64)
    values = torch.empty(len(scores), 2, dtype=torch.float32)
    pointers = (scores.data_ptr(), ids.data_ptr(), values.data_ptr())
    _run("best_unit", len(scores), (*pointers, scores.shape[1]), rows_per_unit=1)
    return ids, values


@lru_cache(maxsize=8)
def _bits(number: float) -> int:
    """A float32 as the integer with the same bits, which is how it travels among int64 arguments."""
    return int(np.float32(number).view(np.int32))


def _run(name: str, rows: int, arguments: tuple[int, ...], rows_per_unit: int | None = None) -> None:
    kernel = kernels()
    kernel.all_cores().run_rows(getattr(kernel, name).address, rows, arguments, rows_per_unit or kernel.ROWS)
