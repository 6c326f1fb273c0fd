"""The attention kernel that walks block tables in place, compiled by numba. Needs numba; nothing here needs torch.

One unit of work is up to TILE query tokens of one row and one key/value head, or all heads of a single token (see
paged_attention.py). A head's query heads times the tokens are the rows of two small matrix products, both done by the
tiles of gemm_kernel.py:

    scores = Q Kᵀ    32 keys at a time, turned so that equal dimensions of all keys lie side by side (a panel)
    output = P V     16 values at a time; 32 dimensions of them are a panel as they lie in the block

What a query row sums, and in which order, depends on its own context length only: not on the chunk it came in, nor
on other rows, nor on the size of a block. A key that a row cannot see gets the weight zero. `fastmath` may regroup
the sum of the softmax, but it does so at compile time, once for all rows.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from lab.execution.gemm_kernel import LINE, PANEL, times_halves, times_panel
from lab.execution.native import as_floats, as_words, callback, compiled, prefetch, words

TILE = 16  # query tokens per unit
GROUP = 16  # keys or values that are looked up in the block table at a time
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # their sum is ln 2


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


@compiled(fastmath=True)
def _softmax(scores, count):
    """Replace the first `count` scores by exp(score - max), the others by 0; returns their sum."""
    largest = scores[0]
    for i in range(count):
        largest = max(largest, scores[i])
    total = np.float32(0)
    for i in range(count):
        weight = _exp(scores[i] - largest)
        scores[i] = weight
        total += weight
    scores[count:] = 0
    return total


@compiled()
def _sixteen(pool, table, head, first, stop, copy):
    """Address and row stride (bytes) of the vectors of positions first … first + 15 of one head.

    In place where they lie in one block, otherwise copied to `copy` [16, dim rounded up], zeros from `stop` on.
    """
    slots, dim = pool.shape[2:]
    if slots % GROUP == 0 and dim == copy.shape[1]:
        return pool[table[first // slots], head, first % slots].ctypes.data, 4 * dim
    for i in range(GROUP):
        if first + i < stop:
            copy[i, :dim] = pool[table[(first + i) // slots], head, (first + i) % slots]
        else:
            copy[i] = 0
    return copy.ctypes.data, 4 * copy.shape[1]


@compiled()
def _address(pool, table, head, first, stop):
    """Where the vectors of position `first` lie, 0 from `stop` on."""
    slots = pool.shape[2]
    if first >= stop:
        return np.int64(0)
    return np.int64(pool[table[first // slots], head, first % slots].ctypes.data)


@compiled()
def _fetch(address, part, lines):
    """Ask for the `part`-th `lines` cache lines from `address` on: the processor does not foresee where a block lies.

    A few at a time, in between the arithmetic: it drops what exceeds its queue.
    """
    if address != 0:
        for line in range(part * lines, (part + 1) * lines):
            prefetch(address + LINE * line)


@compiled()
def _sixteen_keys(keys, table, head, first, seen, copy):
    """Address of positions first … first + 15 of one head as [dim, 16], and its row stride in bytes.

    In place where they lie in one block, otherwise copied to `copy`; address 0 from `seen` on.
    """
    dim, slots = keys.shape[2:]
    if first >= seen:
        return np.int64(0), 0
    if slots % GROUP == 0:
        return np.int64(keys[table[first // slots], head, 0, first % slots :].ctypes.data), 4 * slots
    for i in range(min(GROUP, seen - first)):
        at = first + i
        copy[:, i] = keys[table[at // slots], head, :, at % slots]
    return np.int64(copy.ctypes.data), 4 * GROUP


@compiled()
def _score(q, keys, table, kv_head, seen, copies, scores):
    """scores[heads, rows, keys] = q[heads, rows, dim] · keys of the heads from `kv_head` on, those before `seen`."""
    heads, rows, wide = q.shape
    dim = keys.shape[2]
    in_place = keys.shape[3] % GROUP == 0
    for first in range(0, seen, PANEL):
        for h in range(heads):
            left, stride = _sixteen_keys(keys, table, kv_head + h, first, seen, copies[0])
            right, _ = _sixteen_keys(keys, table, kv_head + h, first + GROUP, seen, copies[1])
            ahead, ahead_right = np.int64(0), np.int64(0)
            if in_place:
                ahead, _ = _sixteen_keys(keys, table, kv_head + h, first + PANEL, seen, copies[0])
                ahead_right, _ = _sixteen_keys(keys, table, kv_head + h, first + PANEL + GROUP, seen, copies[0])
            x, to = q[h].ctypes.data, scores[h].ctypes.data + 4 * first
            if right == 0:
                right = left  # nobody sees these scores
            times_halves(rows, x, 4 * wide, left, right, stride, dim, to, 4 * scores.shape[2], ahead, ahead_right)


@compiled()
def _mix(weights, values, table, kv_head, seen, copy, mixed):
    """mixed[heads, rows, dim] = weights[heads, rows, keys] · values of the heads from `kv_head` on."""
    heads, rows, wide = mixed.shape
    stride = 4 * weights.shape[2]
    for first in range(0, seen, GROUP):
        more = np.int64(first > 0)
        for h in range(heads):
            ahead = _address(values, table, kv_head + h, first + 2 * GROUP, seen)
            source, step = _sixteen(values, table, kv_head + h, first, seen, copy)
            x, to = weights[h].ctypes.data + 4 * first, mixed[h].ctypes.data
            for d in range(0, wide, PANEL):
                _fetch(ahead, d // PANEL, 4 * GROUP * PANEL // LINE)
                times_panel(rows, 0, x, stride, source + 4 * d, step, GROUP, to + 4 * d, 4 * wide, more, 0)


@compiled()
def _times(source, factor, target):
    for i in range(len(source)):
        target[i] = source[i] * factor


@compiled()
def _attend(table, visible, queries, keys, values, kv_head, heads, output):
    """One unit: queries [tokens, heads, dim] of one row against the blocks of `table`, in `heads` key/value heads."""
    dim = keys.shape[2]
    wide = -(-dim // PANEL) * PANEL
    group = queries.shape[1] // keys.shape[1]
    rows = len(queries) * group
    seen = visible.max()
    q = np.zeros((heads, rows, wide), np.float32)
    scores = np.empty((heads, rows, -(-seen // PANEL) * PANEL), np.float32)
    copy, copies = np.zeros((GROUP, wide), np.float32), np.zeros((2, dim, GROUP), np.float32)
    scale = np.float32(1.0 / np.sqrt(dim))
    for h in range(heads):
        for r in range(rows):
            _times(queries[r // group, (kv_head + h) * group + r % group], scale, q[h, r])
    _score(q, keys, table, kv_head, seen, copies, scores)
    sums = np.empty((heads, rows), np.float32)
    for h in range(heads):
        ahead = _address(values, table, kv_head + h, 0, seen)
        for r in range(rows):
            _fetch(ahead, r, -(-4 * GROUP * dim // (LINE * rows)))
            sums[h, r] = _softmax(scores[h, r], visible[r // group])
    _mix(scores, values, table, kv_head, seen, copy, q)  # the queries are spent: their place takes the result
    for h in range(heads):
        for r in range(rows):
            _times(q[h, r, :dim], np.float32(1) / sums[h, r], output[r // group, (kv_head + h) * group + r % group])


@callback()
def attend_unit(arguments, unit):
    """Unit `unit` of (row, first token, tokens, kv head, kv heads), laid out as by `PagedAttention.attend`."""
    units, tables, table_width, visible, queries, keys, values, output = words(arguments, 8)
    tokens, heads, dim, blocks, kv_heads, slots = words(arguments + 64, 6)
    row, first, count, kv_head, of_unit = words(units + 40 * unit, 5)
    span = slice(first, first + count)
    _attend(
        carray(as_words(tables + 8 * row * table_width), (table_width,)),
        carray(as_words(visible), (tokens,))[span],
        carray(as_floats(queries), (tokens, heads, dim))[span],
        carray(as_floats(keys), (blocks, kv_heads, dim, slots)),
        carray(as_floats(values), (blocks, kv_heads, slots, dim)),
        kv_head,
        of_unit,
        carray(as_floats(output), (tokens, heads, dim))[span],
    )
