"""The attention kernel that walks block tables in place, compiled by numba. Needs numba; nothing here needs torch.

One unit of work is up to TILE query tokens of one row and one key/value head. Its query heads times its tokens
are the rows of two small matrix products, scores = Q Kᵀ and output = P V, taken block by block: a block of keys
is 4 KiB for the default model and stays in the first-level cache while every query row uses it.

What a query row sums, and in which order, depends on its own context length only: not on the chunk it came in, nor
on other rows. `fastmath` may regroup a sum, but it does so at compile time, once for all rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit, prange

TILE = 8  # query tokens per unit
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # their sum is ln 2


def compiled(**options: object) -> Callable[[Callable], Callable]:
    """numba.njit, kept on disk so that only set-up waits for the compiler; not kept where no folder is writable."""
    options |= {"nogil": True, "fastmath": True, "error_model": "numpy"}

    def decorate(function: Callable) -> Callable:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            return njit(**options)(function)

    return decorate


@compiled(inline="always")
def _dot_four(query, keys, slot, dim, scores):
    """Scores of four neighbouring slots at once: each number of the query is loaded once for all four."""
    a = b = c = d = np.float32(0)
    for i in range(dim):
        q = query[i]
        a += q * keys[slot, i]
        b += q * keys[slot + 1, i]
        c += q * keys[slot + 2, i]
        d += q * keys[slot + 3, i]
    scores[slot], scores[slot + 1], scores[slot + 2], scores[slot + 3] = a, b, c, d


@compiled()
def _score_block(query, keys, scores):
    """scores[slots] = keys [slots, dim] · query [dim]. A constant `dim` lets the compiler unroll."""
    slots, dim = keys.shape
    whole = slots - slots % 4
    for slot in range(0, whole, 4):
        if dim == 64:
            _dot_four(query, keys, slot, 64, scores)
        else:
            _dot_four(query, keys, slot, dim, scores)
    for slot in range(whole, slots):
        total = np.float32(0)
        for i in range(dim):
            total += query[i] * keys[slot, i]
        scores[slot] = total


@compiled(inline="always")
def _add_eight(weights, values, slot, dim, output):
    """output += eight weighted rows of values in one pass, so that the output is loaded and stored once."""
    a, b, c, d = weights[slot], weights[slot + 1], weights[slot + 2], weights[slot + 3]
    e, f, g, h = weights[slot + 4], weights[slot + 5], weights[slot + 6], weights[slot + 7]
    for i in range(dim):
        low = a * values[slot, i] + b * values[slot + 1, i] + c * values[slot + 2, i] + d * values[slot + 3, i]
        high = e * values[slot + 4, i] + f * values[slot + 5, i] + g * values[slot + 6, i] + h * values[slot + 7, i]
        output[i] += low + high


@compiled()
def _mix_block(weights, values, output):
    """output[dim] += weights [slots] · values [slots, dim]."""
    slots, dim = values.shape
    whole = slots - slots % 8
    for slot in range(0, whole, 8):
        if dim == 64:
            _add_eight(weights, values, slot, 64, output)
        else:
            _add_eight(weights, values, slot, dim, output)
    for slot in range(whole, slots):
        for i in range(dim):
            output[i] += weights[slot] * values[slot, i]


@compiled(inline="always")
def _exp(x):
    """e^x for x <= 0 to two units in the last place, from operations that vectorise (the Cephes polynomial)."""
    x = max(x, np.float32(-87.0))
    power = np.floor(x * LOG2_E + np.float32(0.5))
    r = x - power * LN2_HIGH - power * LN2_LOW
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * (r * r) + r + np.float32(1.0)
    return y * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled()
def _softmax(scores, count):
    """Replace the first `count` scores by exp(score - max); returns their sum."""
    largest = scores[0]
    for i in range(count):
        largest = max(largest, scores[i])
    total = np.float32(0)
    for i in range(count):
        weight = _exp(scores[i] - largest)
        scores[i] = weight
        total += weight
    return total


@compiled()
def _attend_unit(table, visible, queries, keys, values, first_head, kv_head, output, q, scores):
    """One unit: queries [tokens, heads, dim] of one row against the blocks of `table`, in one key/value head.

    `q` [TILE * group, dim] and `scores` [TILE * group, slots] are scratch. Blocks a row cannot see are skipped.
    """
    slots, dim = keys.shape[2:]
    group = len(q) // TILE
    rows = len(queries) * group
    scale = np.float32(1.0 / np.sqrt(dim))
    for r in range(rows):
        for i in range(dim):
            q[r, i] = queries[r // group, first_head + r % group, i] * scale
            output[r // group, first_head + r % group, i] = 0
    num_blocks = -(-visible.max() // slots)
    for b in range(num_blocks):
        for r in range(rows):
            if b * slots < visible[r // group]:
                _score_block(q[r], keys[table[b], kv_head], scores[r, b * slots : (b + 1) * slots])
    for r in range(rows):
        seen = visible[r // group]
        scores[r, seen : -(-seen // slots) * slots] = 0
        q[r, 0] = _softmax(scores[r], seen)  # the query is spent: its first number now holds the sum
    for b in range(num_blocks):
        for r in range(rows):
            if b * slots < visible[r // group]:
                target = output[r // group, first_head + r % group]
                _mix_block(scores[r, b * slots : (b + 1) * slots], values[table[b], kv_head], target)
    for r in range(rows):
        for i in range(dim):
            output[r // group, first_head + r % group, i] /= q[r, 0]


@compiled()
def attend_serial(units, tables, visible, queries, keys, values, output):
    """Work through `units` [n, 4] of (row, first token, tokens, kv head) on this thread."""
    kv_heads, slots, dim = keys.shape[1:]
    group = queries.shape[1] // kv_heads
    q = np.empty((TILE * group, dim), np.float32)
    scores = np.empty((TILE * group, tables.shape[1] * slots), np.float32)
    for row, first, count, kv_head in units:
        span = slice(first, first + count)
        _attend_unit(
            tables[row],
            visible[span],
            queries[span],
            keys,
            values,
            kv_head * group,
            kv_head,
            output[span],
            q,
            scores,
        )


@compiled(parallel=True)
def attend_parallel(units, bounds, tables, visible, queries, keys, values, output):
    """Thread i works through units [bounds[i], bounds[i + 1])."""
    for i in prange(len(bounds) - 1):
        attend_serial(units[bounds[i] : bounds[i + 1]], tables, visible, queries, keys, values, output)
