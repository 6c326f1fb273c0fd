"""y = x Wᵀ in float32 for any number of rows, every row in the same order of summation. Needs numba, not torch.

W [out, in] is stored as panels of 16 outputs: panel p holds, for every input k, the 16 weights W[16 p … 16 p + 15, k]
side by side. One step of the innermost loop then takes one number of x, spread over a vector, and multiplies it
with 16 weights that lie next to each other; the sums of `rows` x 16 outputs stay in registers meanwhile:

    for k: for each row r: y[r, 0:16] += x[r, k] * panel[k, 0:16]

Reading W from memory is the whole cost of a few rows, arithmetic that of many. Up to three rows take two panels at a
time, because one panel has too few independent sums to hide the latency of an addition; four to six rows take one.

An output is the sum over blocks of DEPTH inputs, each block summed in the order of k by fused multiply-adds. This
order depends on nothing else: not on the number of rows, not on a row's neighbours, not on the core.
"""

from __future__ import annotations

import platform

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lab.execution.native import WORD, callback, compiled, load, pointer

PANEL = 16  # outputs
DEPTH = 576  # inputs summed before they are added to the output: 36 KiB of a panel
ROWS = 96  # rows of x that one unit of work takes
UNROLL = 4

SINGLE, HALF = ir.FloatType(), ir.HalfType()
LANES = 8
VECTOR = ir.VectorType(SINGLE, LANES)
_ARM = platform.machine() in ("arm64", "aarch64")  # every such processor has both instructions
HAS_FMA = _ARM or bool(llvm.get_host_cpu_features().get("fma"))
HAS_HALF = _ARM or bool(llvm.get_host_cpu_features().get("f16c"))


def _tile(rows: int, panels: int, half: bool):
    """y[rows, 16 * panels] = (or +=, where `more`) x[rows, depth] times `panels` panels; all strides in bytes."""
    vectors = panels * PANEL // LANES
    weight_type = ir.VectorType(HALF, LANES) if half else VECTOR
    weight_size = 2 if half else 4

    @intrinsic
    def tile(typing, x, x_stride, w, panel_stride, w_stride, depth, y, y_stride, more):
        def generate(context, builder, signature, arguments):
            x, x_stride, w, panel_stride, w_stride, depth, y, y_stride, more = arguments
            at = _Addresses(builder)
            x_rows = [at.plus(x, x_stride, r) for r in range(rows)]
            y_rows = [at.plus(y, y_stride, r) for r in range(rows)]
            sums = [
                [cgutils.alloca_once_value(builder, ir.Constant(VECTOR, None)) for _ in range(vectors)]
                for _ in range(rows)
            ]

            def weights(k):
                for v in range(vectors):
                    start = at.plus(w, panel_stride, v * LANES // PANEL)
                    offset = builder.mul(k, w_stride)
                    address = builder.add(builder.add(start, offset), WORD(v * LANES % PANEL * weight_size))
                    loaded = at.load(address, weight_type, weight_size)
                    yield builder.fpext(loaded, VECTOR) if half else loaded

            def one(k):
                panel = list(weights(k))
                for r in range(rows):
                    number = at.load(builder.add(x_rows[r], builder.mul(k, WORD(4))), SINGLE, 4)
                    spread = _spread(builder, number)
                    for v in range(vectors):
                        builder.store(_fused(builder, spread, panel[v], builder.load(sums[r][v])), sums[r][v])

            whole = builder.sdiv(depth, WORD(UNROLL))
            with cgutils.for_range(builder, whole) as loop:
                for u in range(UNROLL):
                    one(builder.add(builder.mul(loop.index, WORD(UNROLL)), WORD(u)))
            done = builder.mul(whole, WORD(UNROLL))
            with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
                one(builder.add(done, loop.index))
            is_more = builder.icmp_signed("!=", more, WORD(0))
            with builder.if_then(is_more):
                for r in range(rows):
                    for v in range(vectors):
                        old = at.load(builder.add(y_rows[r], WORD(4 * LANES * v)), VECTOR, 4)
                        builder.store(builder.fadd(old, builder.load(sums[r][v])), sums[r][v])
            for r in range(rows):
                for v in range(vectors):
                    target = pointer(builder, builder.add(y_rows[r], WORD(4 * LANES * v)), VECTOR)
                    builder.store(builder.load(sums[r][v]), target, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return tile


class _Addresses:
    def __init__(self, builder: ir.IRBuilder):
        self.builder = builder

    def plus(self, base: ir.Value, stride: ir.Value, times: int) -> ir.Value:
        return self.builder.add(base, self.builder.mul(stride, WORD(times))) if times else base

    def load(self, address: ir.Value, of: ir.Type, align: int) -> ir.Value:
        return self.builder.load(pointer(self.builder, address, of), align=align)


def _spread(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """A vector with `number` in every lane."""
    empty = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))


def _fused(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, rounded once where the processor can."""
    if not HAS_FMA:
        return builder.fadd(builder.fmul(a, b), c)
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [a, b, c])


_1x2, _2x2, _3x2 = (_tile(rows, 2, False) for rows in (1, 2, 3))
_4x1, _5x1, _6x1 = (_tile(rows, 1, False) for rows in (4, 5, 6))
_h1x2, _h2x2, _h3x2 = (_tile(rows, 2, HAS_HALF) for rows in (1, 2, 3))
_h4x1, _h5x1, _h6x1 = (_tile(rows, 1, HAS_HALF) for rows in (4, 5, 6))


@compiled()
def _few_rows(rows, half, x, x_stride, w, panel, w_stride, depth, y, y_stride, more):
    """One to three rows, two panels."""
    if half:
        if rows == 1:
            _h1x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
        elif rows == 2:
            _h2x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
        elif rows == 3:
            _h3x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    elif rows == 1:
        _1x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    elif rows == 2:
        _2x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    elif rows == 3:
        _3x2(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)


@compiled()
def _more_rows(rows, half, x, x_stride, w, panel, w_stride, depth, y, y_stride, more):
    """Four to six rows, one panel."""
    if half:
        if rows == 4:
            _h4x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
        elif rows == 5:
            _h5x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
        else:
            _h6x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    elif rows == 4:
        _4x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    elif rows == 5:
        _5x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)
    else:
        _6x1(x, x_stride, w, panel, w_stride, depth, y, y_stride, more)


@compiled()
def _next_tile(left):
    """How many of `left` rows the next tile takes, so that no tile of one to three rows has to stand alone twice."""
    if left > 8 or left == 6:
        return 6
    return 4 if left == 7 or left == 8 else left


@compiled()
def two_panels(rows, half, x, x_stride, w, panel, w_stride, depth, y, y_stride, more):
    """y[rows, 32] from two neighbouring panels, whose slices of `depth` inputs stay in the cache for all rows."""
    done = 0
    for p in range(2):
        done = 0
        while True:
            tile = _next_tile(rows - done)
            if tile < 4:
                break
            to = y + done * y_stride + p * PANEL * 4
            _more_rows(
                tile, half, x + done * x_stride, x_stride, w + p * panel, panel, w_stride, depth, to, y_stride, more
            )
            done += tile
    _few_rows(
        rows - done, half, x + done * x_stride, x_stride, w, panel, w_stride, depth, y + done * y_stride, y_stride, more
    )


@callback()
def multiply_unit(arguments, unit):
    """One unit: up to ROWS rows times two panels. Arguments (int64): see `arguments_of`."""
    x, rows, depth, w, pairs, y, half = [load(arguments + 8 * i) for i in range(7)]
    first = unit // pairs * ROWS
    pair = unit % pairs
    size = 2 if half else 4
    panel = depth * PANEL * size
    x_stride, y_stride = 4 * depth, 4 * 2 * PANEL * pairs
    rows = min(ROWS, rows - first)
    for k in range(0, depth, DEPTH):
        two_panels(
            rows,
            half,
            x + first * x_stride + 4 * k,
            x_stride,
            w + pair * 2 * panel + k * PANEL * size,
            panel,
            PANEL * size,
            min(DEPTH, depth - k),
            y + first * y_stride + pair * 2 * PANEL * 4,
            y_stride,
            np.int64(k > 0),
        )


def arguments_of(x: int, rows: int, depth: int, panels: int, num_pairs: int, y: int, half: bool) -> np.ndarray:
    """What `multiply_unit` reads: addresses of x [rows, depth], of the panels, and of y [rows, 32 * num_pairs]."""
    return np.array([x, rows, depth, panels, num_pairs, y, half], np.int64)


def units_of(rows: int, num_pairs: int) -> int:
    """Units that cover `rows` rows."""
    return -(-rows // ROWS) * num_pairs
