"""Three ways to multiply: available ones are taken in order, all agree, and private operators that go are noticed."""

from __future__ import annotations

import platform

import pytest
import torch
import torch.nn.functional as F

from lab.errors import ModelError
from lab.execution import linear
from lab.execution.linear import WAYS, Linear


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN is used on x86 only")
def test_the_private_operators_are_still_there():
    """If this fails after a torch upgrade, decode steps without numba are about twice as slow: see linear.py."""
    assert linear.onednn_ops() is not None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_every_way_multiplies_like_a_plain_product(way, rows):
    torch.manual_seed(0)
    weight, x, bias = torch.randn(72, 40), torch.randn(rows, 40), torch.randn(72)
    assert (Linear(weight, way=way)(x) - F.linear(x, weight)).abs().max() < 1e-4
    assert (Linear(weight, bias, way=way)(x) - F.linear(x, weight, bias)).abs().max() < 1e-4


def test_the_next_way_is_taken_where_one_is_missing(monkeypatch):
    weight, x = torch.randn(72, 40), torch.randn(3, 40)
    assert Linear(weight).way == "kernel"
    monkeypatch.setattr(linear, "kernel", lambda: None)
    assert Linear(weight).way == ("onednn" if linear.onednn_ops() else "plain")
    monkeypatch.setattr(linear, "onednn_ops", lambda: None)
    assert Linear(weight).way == "plain"
    assert torch.equal(Linear(weight)(x), F.linear(x, weight))


def test_without_numba_there_is_no_kernel(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lab.execution.gemm", None)
    linear.kernel.cache_clear()
    assert linear.kernel() is None
    linear.kernel.cache_clear()


def test_the_environment_can_ask_for_another_way(monkeypatch):
    monkeypatch.setenv("LAB_LINEAR", "plain")
    assert Linear(torch.randn(4, 4)).way == "plain"
    monkeypatch.setenv("LAB_LINEAR", "")
    assert Linear(torch.randn(4, 4)).way == "kernel"
    monkeypatch.setenv("LAB_LINEAR", "magic")
    with pytest.raises(ModelError, match="magic"):
        Linear(torch.randn(4, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_numbers_take_the_plain_way(dtype):
    weight, x, bias = (torch.randn(*size, dtype=dtype) for size in ((8, 4), (3, 4), (8,)))
    layer = Linear(weight, bias)
    assert layer.way == "plain" and torch.equal(layer(x), F.linear(x, weight, bias))


@pytest.mark.parametrize("way", WAYS)
def test_half_storage_rounds_the_weights_and_nothing_else(way):
    torch.manual_seed(0)
    weight, x = torch.randn(72, 40), torch.randn(5, 40)
    got = Linear(weight, storage="fp16", way=way)(x)
    assert (got - F.linear(x, weight.half().float())).abs().max() < 1e-4
    assert (got - F.linear(x, weight)).abs().max() > 1e-4
    with pytest.raises(ModelError, match="int8"):
        Linear(weight, storage="int8")
