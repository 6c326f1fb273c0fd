"""The few machine operations that numba lacks, as intrinsics, and one way to compile. Needs numba, not torch.

Addresses are plain integers here. Whoever passes one keeps the memory behind it alive until the call returns.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

WORD = ir.IntType(64)
SOURCES = ("native.py", "cores.py", "gemm_kernel.py", "paged_kernel.py", "elementwise_kernel.py")


def _own_cache_folder() -> None:
    """Keep compiled code in a folder named after all kernels' sources.

    numba itself looks at the function's own file only, and would go on using code into which an older version of
    another file was compiled.
    """
    here = Path(__file__).parent
    digest = sha256(b"".join((here / name).read_bytes() for name in SOURCES)).hexdigest()[:12]
    folder = Path(numba.config.CACHE_DIR or here / "__pycache__") / f"kernels-{digest}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        numba.config.CACHE_DIR = str(folder)


_own_cache_folder()


def compiled(*signature: str, **options: object) -> Callable[[Callable], Callable]:
    """numba.njit, kept on disk so that only set-up waits for the compiler; not kept where no folder is writable.

    With a signature it is compiled when its module is imported, otherwise when it is first called.
    """
    return _kept(lambda **kept: njit(*signature, **kept), {"nogil": True, **options})


def callback(**options: object) -> Callable[[Callable], object]:
    """A compiled `function(arguments: address, unit: int)` whose `.address` other compiled code can call."""
    return _kept(lambda **kept: numba.cfunc("void(int64, int64)", **kept), options)


def _kept(compiler: Callable, options: dict) -> Callable:
    options = {"error_model": "numpy", **options}

    def decorate(function: Callable) -> object:
        try:
            return compiler(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache
            return compiler(**options)(function)

    return decorate


def pointer(builder: ir.IRBuilder, address: ir.Value, of: ir.Type) -> ir.Value:
    """The integer `address` as a pointer to `of`."""
    return builder.inttoptr(address, of.as_pointer())


@intrinsic
def load(typing, address):
    """The int64 at `address`, not moved before nor merged with other accesses (acquire)."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(pointer(builder, arguments[0], WORD), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic(prefer_literal=True)
def words(typing, address, count):
    """The `count` (a literal) int64 from `address` on, as a tuple."""
    number = count.literal_value

    def generate(context, builder, signature, arguments):
        first = pointer(builder, arguments[0], WORD)
        values = [builder.load(builder.gep(first, [WORD(i)]), align=8) for i in range(number)]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(types.int64, number)(types.int64, count), generate


@intrinsic
def store(typing, address, value):
    """Make `value` visible at `address` after everything written before (sequentially consistent)."""

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], pointer(builder, arguments[0], WORD), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def add(typing, address, value):
    """Atomically add to the int64 at `address`."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", pointer(builder, arguments[0], WORD), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def swap_if(typing, address, expected, value):
    """Atomically replace the int64 at `address` by `value` if it is `expected`; true if it was."""

    def generate(context, builder, signature, arguments):
        target = pointer(builder, arguments[0], WORD)
        return builder.extract_value(builder.cmpxchg(target, arguments[1], arguments[2], "seq_cst", "seq_cst"), 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


@intrinsic
def call(typing, function, arguments_address, unit):
    """Call a `callback` by its address."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [WORD, WORD])
        builder.call(pointer(builder, arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def call_plain(typing, function):
    """Call a C function without arguments by its address."""

    def generate(context, builder, signature, arguments):
        builder.call(pointer(builder, arguments[0], ir.FunctionType(ir.IntType(32), [])), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def fetch_line(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Begin to bring the cache line at `address` near, without waiting for it; any address is allowed."""
    byte, number = ir.IntType(8), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer(builder, address, byte), number(0), number(3), number(1)])  # reading, to stay, data


@intrinsic
def prefetch(typing, address):
    """`fetch_line` for compiled code."""

    def generate(context, builder, signature, arguments):
        fetch_line(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _view(numba_type: types.Type, machine_type: ir.Type) -> object:
    @intrinsic
    def view(typing, address):
        """`address` as a pointer that numba.carray takes."""

        def generate(context, builder, signature, arguments):
            return pointer(builder, arguments[0], machine_type)

        return types.CPointer(numba_type)(types.int64), generate

    return view


as_words = _view(types.int64, WORD)
as_floats = _view(types.float32, ir.FloatType())


def yield_address() -> int:
    """Address of the system's "let another thread run" (sched_yield, SwitchToThread)."""
    function = ctypes.windll.kernel32.SwitchToThread if os.name == "nt" else ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0
