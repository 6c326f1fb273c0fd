"""The attention kernel that walks block tables in place, compiled by numba. Needs numba; nothing here needs torch.

One unit of work is up to TILE query tokens of one row and one key/value head, or all heads of a single token (see
paged_attention.py). A head's query heads times the tokens are the rows of two small matrix products, both done by the
tiles of gemm_kernel.py:

    scores = Q Kᵀ    32 keys at a time; equal dimensions of 16 lie side by side in the block: two halves of a panel
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
def _offset(table, first, slots, block, slot):
    """Bytes from the beginning of a pool to position `first`, which lies `slot` bytes after its neighbour."""
    index = first // slots
    return table[index] * block + (first - index * slots) * slot


@compiled()
def _copy_keys(keys, table, head, first, stop, target):
    """target[dim, 16] = positions first … first + 15 of one head of keys [blocks, kv heads, dim, slots]."""
    dim, slots = keys.shape[2:]
    for i in range(max(0, min(GROUP, stop - first))):
        block, slot = table[(first + i) // slots], (first + i) % slots
        for d in range(dim):
            target[d, i] = keys[block, head, d, slot]


@compiled()
def _copy_values(values, table, head, first, stop, target):
    """target[16, dim rounded up] = positions first … first + 15 of one head, zeros from `stop` on."""
    slots, dim = values.shape[2:]
    for i in range(GROUP):
        if first + i < stop:
            target[i, :dim] = values[table[(first + i) // slots], head, (first + i) % slots]
        else:
            target[i] = 0


@compiled()
def _score(q, keys, table, kv_head, seen, copies, scores):
    """scores[heads, rows, keys] = q[heads, rows, dim] · keys of the heads from `kv_head` on, those before `seen`.

    Keys are multiplied where they lie, if sixteen lie in one block, and those of the next panel are asked for.
    """
    heads, rows, wide = q.shape
    _, kv_heads, dim, slots = keys.shape
    one_head = 4 * dim * slots
    start = np.int64(keys.ctypes.data) + kv_head * one_head
    in_place = slots % GROUP == 0
    stride = 4 * slots if in_place else 4 * GROUP
    x, to = np.int64(q.ctypes.data), np.int64(scores.ctypes.data)
    for first in range(0, seen, PANEL):
        left, right = np.int64(copies[0].ctypes.data), np.int64(copies[1].ctypes.data)
        ahead = ahead_right = np.int64(0)
        if in_place:
            left = right = start + _offset(table, first, slots, kv_heads * one_head, 4)
            if first + GROUP < seen:  # else nobody sees the scores on the right
                right = start + _offset(table, first + GROUP, slots, kv_heads * one_head, 4)
            if first + PANEL < seen:
                ahead = ahead_right = start + _offset(table, first + PANEL, slots, kv_heads * one_head, 4)
            if first + PANEL + GROUP < seen:
                ahead_right = start + _offset(table, first + PANEL + GROUP, slots, kv_heads * one_head, 4)
        for h in range(heads):
            apart = h * one_head if in_place else 0
            if not in_place:
                _copy_keys(keys, table, kv_head + h, first, seen, copies[0])
                _copy_keys(keys, table, kv_head + h, first + GROUP, seen, copies[1])
            xs, y, y_stride = x + 4 * h * rows * wide, to + 4 * first, 4 * scores.shape[2]
            y += h * rows * y_stride
            near, near_right = (ahead + apart, ahead_right + apart) if ahead != 0 else (ahead, ahead)
            times_halves(rows, xs, 4 * wide, left + apart, right + apart, stride, dim, y, y_stride, near, near_right)


@compiled()
def _mix(weights, values, table, kv_head, seen, copy, mixed):
    """mixed[heads, rows, dim] = weights[heads, rows, keys] · values of the heads from `kv_head` on."""
    heads, rows, wide = mixed.shape
    _, kv_heads, slots, dim = values.shape
    one_head = 4 * dim * slots
    start = np.int64(values.ctypes.data) + kv_head * one_head
    in_place = slots % GROUP == 0 and dim == wide
    x, to, stride = np.int64(weights.ctypes.data), np.int64(mixed.ctypes.data), 4 * weights.shape[2]
    for first in range(0, seen, GROUP):
        source, ahead = np.int64(copy.ctypes.data), np.int64(0)
        if in_place:
            source = start + _offset(table, first, slots, kv_heads * one_head, 4 * dim)
            if first + 2 * GROUP < seen:
                ahead = start + _offset(table, first + 2 * GROUP, slots, kv_heads * one_head, 4 * dim)
        for h in range(heads):
            apart = h * one_head if in_place else 0
            if not in_place:
                _copy_values(values, table, kv_head + h, first, seen, copy)
            for d in range(0, wide, PANEL):
                if ahead != 0:
                    _fetch(ahead + apart, d // PANEL, 4 * GROUP * PANEL // LINE)
                xs, y = x + 4 * first + h * rows * stride, to + 4 * (h * rows * wide + d)
                more = np.int64(first > 0)
                times_panel(rows, 0, xs, stride, source + apart + 4 * d, 4 * wide, GROUP, y, 4 * wide, more, 0)


@compiled()
def _fetch(address, part, lines):
    """Ask for the `part`-th `lines` cache lines from `address` on: the processor does not foresee where a block lies.

    A few at a time, in between the arithmetic: it drops what exceeds its queue.
    """
    for line in range(part * lines, (part + 1) * lines):
        prefetch(address + LINE * line)


@compiled()
def _times(source, factor, target):
    for i in range(len(source)):
        target[i] = source[i] * factor


@compiled()
def _attend(work, table, visible, queries, keys, values, kv_head, heads, output):
    """One unit: queries [tokens, heads, dim] of one row against the blocks of `table`, in `heads` key/value heads.

    `work` has room for what `_room` counts. It is cut into views of plain memory, to which nobody counts references.
    """
    dim = keys.shape[2]
    group = queries.shape[1] // keys.shape[1]
    rows = len(queries) * group
    seen = visible.max()
    wide, across = _up(dim), _up(seen)
    at = np.int64(work.ctypes.data)
    q = carray(as_floats(at), (heads, rows, wide))
    scores = carray(as_floats(at + 4 * heads * rows * wide), (heads, rows, across))
    at += 4 * heads * rows * (wide + across)
    sums = carray(as_floats(at), (heads, rows))
    copies = carray(as_floats(at + 4 * heads * rows), (2, dim, GROUP))
    copy = carray(as_floats(at + 4 * (heads * rows + 2 * dim * GROUP)), (GROUP, wide))
    scale = np.float32(1.0 / np.sqrt(dim))
    for h in range(heads):
        for r in range(rows):
            _times(queries[r // group, (kv_head + h) * group + r % group], scale, q[h, r])
            q[h, r, dim:] = 0
    _score(q, keys, table, kv_head, seen, copies, scores)
    slots = values.shape[2]
    near = np.int64(values.ctypes.data) + 4 * slots * dim * (table[0] * keys.shape[1] + kv_head)
    for h in range(heads):
        for r in range(rows):
            _fetch(near + 4 * h * slots * dim, r, -(-4 * GROUP * dim // (LINE * rows)))
            sums[h, r] = _softmax(scores[h, r], visible[r // group])
    _mix(scores, values, table, kv_head, seen, copy, q)  # the queries are spent: their place takes the result
    for h in range(heads):
        for r in range(rows):
            target = output[r // group, (kv_head + h) * group + r % group]
            _times(q[h, r, :dim], np.float32(1) / sums[h, r], target)


@compiled()
def _up(number):
    return -(-number // PANEL) * PANEL


@compiled()
def _room(rows, dim, seen):
    """float32 numbers that `_attend` works with."""
    return rows * (_up(dim) + _up(seen) + 1) + GROUP * (2 * dim + _up(dim))


@callback()
def attend_unit(arguments, unit):
    """Unit `unit` of (row, first token, tokens, kv head, kv heads), laid out as by `PagedAttention.attend`."""
    _, units, tables, table_width, visible, queries, keys, values, output = words(arguments, 9)
    heads, dim, blocks, kv_heads, slots = words(arguments + 72, 5)
    row, first, count, kv_head, of_unit = words(units + 40 * unit, 5)
    seen = carray(as_words(visible + 8 * first), (count,))
    before = 4 * first * heads * dim
    work = np.empty(_room(count * (heads // kv_heads) * of_unit, dim, seen.max()), np.float32)
    _attend(
        work,
        carray(as_words(tables + 8 * row * table_width), (table_width,)),
        seen,
        carray(as_floats(queries + before), (count, heads, dim)),
        carray(as_floats(keys), (blocks, kv_heads, dim, slots)),
        carray(as_floats(values), (blocks, kv_heads, slots, dim)),
        kv_head,
        of_unit,
        carray(as_floats(output + before), (count, heads, dim)),
    )
