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
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from lab.execution.gemm_kernel import LINE, PANEL, SINGLE, times_panel
from lab.execution.native import WORD, as_floats, as_words, callback, compiled, pointer, prefetch, words

TILE = 16  # query tokens per unit
GROUP = 16  # keys or values that are looked up in the block table at a time
SIDE = 8  # keys and dimensions that are turned at a time
EIGHT = ir.VectorType(SINGLE, SIDE)
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # their sum is ln 2


@intrinsic
def _turn(typing, source, source_stride, target, target_stride):
    """Write 8 rows of 8 floats at `source` as 8 columns at `target`; strides of rows in bytes, multiples of 4.

    Three rounds exchange off-diagonal blocks of 1, 2 and 4 numbers between pairs of vectors.
    """

    def generate(context, builder, signature, arguments):
        source, source_stride, target, target_stride = arguments
        at = [builder.add(source, builder.mul(source_stride, WORD(i))) for i in range(SIDE)]
        rows = [builder.load(pointer(builder, address, EIGHT), align=4) for address in at]
        for size in (1, 2, 4):
            low = [lane + (SIDE - size if lane & size else 0) for lane in range(SIDE)]
            high = [lane + (SIDE if lane & size else size) for lane in range(SIDE)]
            for i in (i for i in range(SIDE) if not i & size):
                pair = rows[i], rows[i + size]
                rows[i], rows[i + size] = _pick(builder, *pair, low), _pick(builder, *pair, high)
        for i in range(SIDE):
            address = builder.add(target, builder.mul(target_stride, WORD(i)))
            builder.store(rows[i], pointer(builder, address, EIGHT), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def _pick(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), SIDE), lanes))


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
        return 0
    return pool[table[first // slots], head, first % slots].ctypes.data


@compiled()
def _fetch(address, part, lines):
    """Ask for the `part`-th `lines` cache lines from `address` on: the processor does not foresee where a block lies.

    A few at a time, in between the arithmetic: it drops what exceeds its queue.
    """
    if address != 0:
        for line in range(part * lines, (part + 1) * lines):
            prefetch(address + LINE * line)


@compiled()
def _score(q, keys, table, kv_head, seen, copy, turned, scores):
    """scores[heads, rows, keys] = q[heads, rows, dim] · keys of the heads from `kv_head` on, those before `seen`."""
    heads, rows, wide = q.shape
    panel = turned.ctypes.data  # [dim, 32 keys]
    for first in range(0, seen, PANEL):
        for h in range(heads):
            for start in range(first, first + PANEL, GROUP):
                if start >= seen:
                    turned[:, start - first :] = 0
                    continue
                ahead = _address(keys, table, kv_head + h, start + 2 * GROUP, seen)
                source, step = _sixteen(keys, table, kv_head + h, start, seen, copy)
                for i in range(0, GROUP, SIDE):
                    for d in range(0, wide, SIDE):
                        _fetch(ahead, (i // SIDE) * (wide // SIDE) + d // SIDE, 4 * SIDE * SIDE // LINE)
                        target = panel + 4 * (d * PANEL + start - first + i)
                        _turn(source + i * step + 4 * d, step, target, 4 * PANEL)
            to = scores[h].ctypes.data + 4 * first
            x = q[h].ctypes.data
            times_panel(rows, 0, x, 4 * wide, panel, 4 * PANEL, wide, to, 4 * scores.shape[2], 0, 0)


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
def _attend(table, visible, queries, keys, values, kv_head, heads, output):
    """One unit: queries [tokens, heads, dim] of one row against the blocks of `table`, in `heads` key/value heads."""
    dim = keys.shape[3]
    wide = -(-dim // PANEL) * PANEL
    group = queries.shape[1] // keys.shape[1]
    rows = len(queries) * group
    seen = visible.max()
    q = np.zeros((heads, rows, wide), np.float32)
    scores = np.empty((heads, rows, -(-seen // PANEL) * PANEL), np.float32)
    copy, turned = np.zeros((GROUP, wide), np.float32), np.empty((wide, PANEL), np.float32)
    scale = np.float32(1.0 / np.sqrt(dim))
    for h in range(heads):
        for r in range(rows):
            for i in range(dim):
                q[h, r, i] = queries[r // group, (kv_head + h) * group + r % group, i] * scale
    _score(q, keys, table, kv_head, seen, copy, turned, scores)
    sums = np.empty((heads, rows), np.float32)
    for h in range(heads):
        ahead = _address(values, table, kv_head + h, 0, seen)
        for r in range(rows):
            _fetch(ahead, r, -(-4 * GROUP * dim // (LINE * rows)))
            sums[h, r] = _softmax(scores[h, r], visible[r // group])
    _mix(scores, values, table, kv_head, seen, copy, q)  # the queries are spent: their place takes the result
    for h in range(heads):
        for r in range(rows):
            for i in range(dim):
                output[r // group, (kv_head + h) * group + r % group, i] = q[h, r, i] / sums[h, r]


@callback()
def attend_unit(arguments, unit):
    """Unit `unit` of (row, first token, tokens, kv head, kv heads), laid out as by `PagedAttention.attend`."""
    units, tables, table_width, visible, queries, keys, values, output = words(arguments, 8)
    tokens, heads, dim, blocks, kv_heads, slots = words(arguments + 64, 6)
    row, first, count, kv_head, of_unit = words(units + 40 * unit, 5)
    span = slice(first, first + count)
    pool = (blocks, kv_heads, slots, dim)
    _attend(
        carray(as_words(tables + 8 * row * table_width), (table_width,)),
        carray(as_words(visible), (tokens,))[span],
        carray(as_floats(queries), (tokens, heads, dim))[span],
        carray(as_floats(keys), pool),
        carray(as_floats(values), pool),
        kv_head,
        of_unit,
        carray(as_floats(output), (tokens, heads, dim))[span],
    )
