"""Norm, RoPE with the write to the cache, the gated activation and the choice of the best token. Needs numba.

A unit of work is ROWS tokens, which must be many enough to be worth a unit. Arguments are int64: the number of rows,
addresses, then sizes (see elementwise.py, which lays them out).
"""

from __future__ import annotations

import numpy as np
from numba import carray

from lab.execution.cores import all_cores as all_cores
from lab.execution.native import as_floats, as_words, callback, compiled, words
from lab.execution.paged_kernel import _exp

ROWS = 4  # tokens per unit
PIECE = 2048  # scores that are searched at a time


@callback()
def take_unit(arguments, unit):
    """Rows; addresses table [any, wide], ids [rows], y [rows, wide]; wide."""
    rows, table, ids, target, wide = words(arguments, 5)
    which, y = carray(as_words(ids), (rows,)), carray(as_floats(target), (rows, wide))
    for row in range(unit * ROWS, min(rows, unit * ROWS + ROWS)):
        source = carray(as_floats(table + 4 * wide * which[row]), (wide,))
        for i in range(wide):
            y[row, i] = source[i]


@callback()
def rotation_unit(arguments, unit):
    """Tokens; addresses positions [tokens], frequencies [pairs], cosines and sines [tokens, pairs]; pairs."""
    tokens, positions, frequencies, cos, sin, pairs = words(arguments, 6)
    position, frequency = carray(as_words(positions), (tokens,)), carray(as_floats(frequencies), (pairs,))
    cosines, sines = carray(as_floats(cos), (tokens, pairs)), carray(as_floats(sin), (tokens, pairs))
    for token in range(unit * ROWS, min(tokens, unit * ROWS + ROWS)):
        for i in range(pairs):
            angle = np.float64(np.float32(position[token]) * frequency[i])
            cosines[token, i] = np.cos(angle)
            sines[token, i] = np.sin(angle)


@compiled(fastmath=True)
def _norm_row(x, weight, eps, y):
    """y = x / sqrt(mean(x²) + eps) · weight."""
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    scale = np.float32(1.0) / np.sqrt(total / np.float32(len(x)) + eps)
    for i in range(len(x)):
        y[i] = x[i] * scale * weight[i]


@callback()
def norm_unit(arguments, unit):
    """Rows; addresses x [rows, dim], weight [dim], y [rows, dim]; dim, the bits of eps."""
    rows, x, weight, y, dim, bits = words(arguments, 6)
    eps = np.int32(bits).view(np.float32)
    weights = carray(as_floats(weight), (dim,))
    sources, targets = carray(as_floats(x), (rows, dim)), carray(as_floats(y), (rows, dim))
    for row in range(unit * ROWS, min(rows, unit * ROWS + ROWS)):
        _norm_row(sources[row], weights, eps, targets[row])


@compiled()
def _turn(head, cos, sin, target, step):
    """Each pair (i, i + dim / 2) of a head turned by its angle; a number lies `step` after the one before."""
    half = len(cos)
    for i in range(half):
        left, right = head[i], head[half + i]
        target[step * i] = left * cos[i] - right * sin[i]
        target[step * (half + i)] = right * cos[i] + left * sin[i]


@callback()
def place_unit(arguments, unit):
    """Tokens; addresses heads, cos, sin, blocks, slots, queries, keys, values; heads, key heads, dim, blocks, slots,
    and the steps from slot to slot and from number to number of a key.
    """
    tokens, heads, cos, sin, blocks, slots, queries, keys, values = words(arguments, 9)
    num_heads, kv_heads, dim, num_blocks, size, slot_step, dim_step = words(arguments + 72, 7)
    source = carray(as_floats(heads), (tokens, num_heads + 2 * kv_heads, dim))
    cosines, sines = carray(as_floats(cos), (tokens, dim // 2)), carray(as_floats(sin), (tokens, dim // 2))
    block, slot = carray(as_words(blocks), (tokens,)), carray(as_words(slots), (tokens,))
    turned = carray(as_floats(queries), (tokens, num_heads, dim))
    key_pool = carray(as_floats(keys), (num_blocks, kv_heads, size * dim))
    value_pool = carray(as_floats(values), (num_blocks, kv_heads, size, dim))
    for token in range(unit * ROWS, min(tokens, unit * ROWS + ROWS)):
        for head in range(num_heads):
            _turn(source[token, head], cosines[token], sines[token], turned[token, head], 1)
        for head in range(kv_heads):
            target = key_pool[block[token], head, slot[token] * slot_step :]
            _turn(source[token, num_heads + head], cosines[token], sines[token], target, dim_step)
            value_pool[block[token], head, slot[token]] = source[token, num_heads + kv_heads + head]


@compiled(fastmath=True)
def _gate_row(gate, up, y):
    """y = gate · sigmoid(gate) · up, with an exponential that cannot overflow."""
    for i in range(len(y)):
        g = gate[i]
        small = _exp(-abs(g))
        y[i] = g * (np.float32(1.0) if g >= 0 else small) / (np.float32(1.0) + small) * up[i]


@callback()
def gated_unit(arguments, unit):
    """Rows; addresses gate and up [rows, 2 wide], y [rows, wide]; wide."""
    rows, source, target, wide = words(arguments, 4)
    both, y = carray(as_floats(source), (rows, 2 * wide)), carray(as_floats(target), (rows, wide))
    for row in range(unit * ROWS, min(rows, unit * ROWS + ROWS)):
        _gate_row(both[row, :wide], both[row, wide:], y[row])


@compiled(fastmath={"nnan", "nsz", "reassoc"})
def _largest(scores):
    """The largest of them, -inf where there are none."""
    largest = np.float32(-np.inf)
    for i in range(len(scores)):
        largest = max(largest, scores[i])
    return largest


@compiled()
def _first(scores, wanted):
    """Where `wanted` first is; 0 where it is not (among scores that are no numbers)."""
    for start in range(0, len(scores), PIECE):
        piece = scores[start : start + PIECE]
        if _largest(piece) == wanted:
            for i in range(len(piece)):
                if piece[i] == wanted:
                    return start + i
    return 0


@callback()
def best_unit(arguments, unit):
    """One row. Rows; addresses scores [rows, wide], ids [rows], best and second best [rows, 2]; wide."""
    rows, source, ids, values, wide = words(arguments, 5)
    scores = carray(as_floats(source), (rows, wide))[unit]
    best = _largest(scores)
    at = _first(scores, best)
    carray(as_words(ids), (rows,))[unit] = at
    pair = carray(as_floats(values), (rows, 2))[unit]
    pair[0] = best
    pair[1] = max(_largest(scores[:at]), _largest(scores[at + 1 :]))
