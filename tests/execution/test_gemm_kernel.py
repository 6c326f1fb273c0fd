"""The matrix kernel: right, and every row the same bits whatever batch it comes in."""

from __future__ import annotations

import platform

import numpy as np
import pytest
import torch
from llvmlite import ir
from numba import njit

from lab.errors import ModelError
from lab.execution import gemm_kernel
from lab.execution.cores import Cores
from lab.execution.gemm import Panels

SHAPES = [(960, 576), (576, 1536), (72, 40), (1, 1), (33, 577), (320, 1153)]  # out, in


def oracle(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.double() @ weight.double().T).float()


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def product(request):
    """A packed weight, 300 rows of input, and their products computed all at once."""
    torch.manual_seed(sum(request.param))
    out, depth = request.param
    weight, x = torch.randn(out, depth), torch.randn(300, depth)
    panels = Panels(weight)
    return weight, panels, x, panels(x)


def test_products_are_those_of_double_precision(product):
    weight, _, x, y = product
    bound = 4e-6 * x.shape[1] ** 0.5 * 4  # rounding of float32 sums of that many products of size one
    assert y.shape == (300, weight.shape[0])
    assert (y - oracle(x, weight)).abs().max() < max(bound, 1e-6)


def test_a_row_is_the_same_bits_for_every_number_of_rows(product):
    _, panels, x, y = product
    for rows in range(1, 301):
        assert torch.equal(panels(x[:rows]), y[:rows]), rows


def test_a_row_is_the_same_bits_at_every_place_and_beside_any_neighbours(product):
    _, panels, x, y = product
    generator = torch.Generator().manual_seed(3)
    for rows in (1, 2, 3, 5, 7, 8, 9, 31, 97, 200):
        chosen = torch.randperm(300, generator=generator)[:rows]
        assert torch.equal(panels(x[chosen]), y[chosen])
    assert torch.equal(panels(x.flip(0)), y.flip(0))


def test_weights_are_read_once_more_only_where_rows_need_it(monkeypatch):
    """Units: panels times blocks of rows, each output in exactly one."""
    rows, seen = gemm_kernel.ROWS, []
    run = Cores._run
    monkeypatch.setattr(Cores, "_run", lambda self, f, words, units: seen.append(units) or run(self, f, words, units))
    panels = Panels(torch.randn(30 * 32, 48))
    for count in (1, rows, rows + 1, 2 * rows + 1):
        panels(torch.randn(count, 48))
    assert seen == [30, 30, 60, 90]


def test_half_storage_multiplies_the_rounded_weights_in_float32():
    torch.manual_seed(1)
    weight, x = torch.randn(96, 200), torch.randn(20, 200)
    half = Panels(weight, half=True)
    assert torch.equal(half(x), Panels(weight.half().float())(x))
    for rows in range(1, 21):
        assert torch.equal(half(x[:rows]), half(x)[:rows])
    assert not torch.equal(half(x), Panels(weight)(x))


def test_half_storage_takes_half_the_memory():
    if not gemm_kernel.HAS_HALF:
        pytest.skip("this processor cannot convert float16")
    weight = torch.randn(96, 200)
    sizes = [Panels(weight, half=half)._panels.untyped_storage().nbytes() for half in (True, False)]
    assert sizes == [96 * 200 * 2, 96 * 200 * 4]


def test_other_layouts_of_the_input():
    torch.manual_seed(2)
    weight, x = torch.randn(64, 48), torch.randn(48, 10)
    panels = Panels(weight)
    assert torch.equal(panels(x.T), panels(x.T.contiguous()))
    assert panels(torch.empty(0, 48)).shape == (0, 64)


@pytest.mark.parametrize("out", [64, 72], ids=["whole panels", "padded"])
def test_a_product_can_be_added_in_place(out):
    torch.manual_seed(4)
    weight, x, before = torch.randn(out, 1153), torch.randn(30, 1153), torch.randn(30, out)
    panels, onto = Panels(weight), before.clone()
    assert panels(x, onto) is onto
    assert torch.allclose(onto, before + oracle(x, weight), atol=1e-3)
    alone = before.clone()
    for row in range(30):
        panels(x[row : row + 1], alone[row : row + 1])
    assert torch.equal(alone, onto)


def test_what_does_not_fit_is_refused_before_memory_is_touched():
    panels, x = Panels(torch.randn(64, 48)), torch.randn(4, 48)
    wrong = [x[:, :40], x.double(), x.half(), x[0], x[None]]
    for given in wrong:
        with pytest.raises(ModelError, match="64 x 48 is multiplied with float32 of 48 columns"):
            panels(given)
    for onto in (torch.zeros(4, 63), torch.zeros(4, 64, dtype=torch.float64), torch.zeros(64)):
        with pytest.raises(ModelError, match="is added to float32 of 64 columns"):
            panels(x, onto)
    with pytest.raises(ModelError, match="4 rows cannot be added to 1"):
        panels(x, torch.zeros(8, 64)[3:4])


def test_a_product_may_be_added_to_its_own_input():
    torch.manual_seed(6)
    square, x = Panels(torch.randn(64, 64)), torch.randn(5, 64)
    expected = x + square(x)
    assert torch.equal(square(x, x), expected)


@pytest.mark.parametrize("lanes, sums", [(8, 12), (16, 24)])
@pytest.mark.parametrize("half", [False, True])
def test_narrow_and_wide_vectors_give_the_same_bits(monkeypatch, lanes, sums, half):
    """A tile of either width, beside the definition: one fused multiply-add after the other."""
    if half and not gemm_kernel.HAS_HALF or not gemm_kernel.HAS_FMA:
        pytest.skip("this processor lacks the instruction")
    wide = {"LANES": lanes, "SUMS": sums, "TILE_ROWS": sums // 2}
    for name, value in {**wide, "VECTOR": ir.VectorType(gemm_kernel.SINGLE, lanes)}.items():
        monkeypatch.setattr(gemm_kernel, name, value)
    tiles = gemm_kernel._tiles(half)

    @njit
    def multiply(rows, x, w, w_stride, depth, y, more):
        tiles(rows, x, 4 * depth, w, w_stride, depth, y, 4 * 32, more, w, 2, 0, 0)

    generator = np.random.default_rng(5)
    depth = 37
    w = generator.normal(size=(depth, 32)).astype(np.float16 if half else np.float32)
    for rows in range(1, sums // 2 + 1):
        x, y = generator.normal(size=(rows, depth)).astype(np.float32), np.ones((rows, 32), np.float32)
        expected = np.zeros((rows, 32), np.float32)
        for k in range(depth):  # a product of two float32 is exact in float64
            expected = (x[:, k : k + 1].astype(np.float64) * w[k].astype(np.float64) + expected).astype(np.float32)
        for more in (0, 1):
            multiply(rows, x.ctypes.data, w.ctypes.data, w.itemsize * 32, depth, y.ctypes.data, more)
            assert np.array_equal(y, expected if more == 0 else expected + expected), (rows, more)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64", "arm64", "aarch64"), reason="another processor")
def test_this_machine_uses_the_kernel():
    """If this fails on a processor of the last ten years, the features are read wrongly: see gemm_kernel.py."""
    assert gemm_kernel.HAS_FMA


@pytest.mark.parametrize("lanes, sums", [(8, 12), (16, 24)])
def test_a_panel_whose_halves_lie_apart(monkeypatch, lanes, sums):
    """As keys of two blocks do."""
    wide = {"LANES": lanes, "SUMS": sums, "TILE_ROWS": sums // 2}
    for name, value in {**wide, "VECTOR": ir.VectorType(gemm_kernel.SINGLE, lanes)}.items():
        monkeypatch.setattr(gemm_kernel, name, value)
    tiles = gemm_kernel._tiles(False, apart=True)

    @njit
    def multiply(rows, x, left, right, stride, depth, y):
        tiles(rows, x, 4 * depth, left, stride, depth, y, 4 * 32, 0, left, 2, right, right)

    generator = np.random.default_rng(1)
    for depth, slots in ((2, 16), (37, 16), (64, 48)):
        left, right = (generator.normal(size=(depth, slots)).astype(np.float32) for _ in range(2))
        panel = torch.from_numpy(np.concatenate([left[:, :16], right[:, :16]], axis=1))
        for rows in range(1, sums // 2 + 1):
            x, y = generator.normal(size=(rows, depth)).astype(np.float32), np.ones((rows, 32), np.float32)
            multiply(rows, x.ctypes.data, left.ctypes.data, right.ctypes.data, 4 * slots, depth, y.ctypes.data)
            assert torch.equal(torch.from_numpy(y), Panels(panel.T.contiguous())(torch.from_numpy(x)))
