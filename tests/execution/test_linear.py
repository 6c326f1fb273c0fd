"""The private oneDNN operators: noticed when they go, and replaced."""

from __future__ import annotations

import platform

import pytest
import torch
import torch.nn.functional as F

from lab.execution import linear
from lab.execution.linear import Linear


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN is used on x86 only")
def test_the_private_operators_are_still_there():
    """If this fails after a torch upgrade, decode steps have become about twice as slow: see linear.py."""
    assert linear.onednn_ops() is not None


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_a_packed_weight_multiplies_like_a_plain_one(rows):
    torch.manual_seed(0)
    weight, x = torch.randn(72, 40), torch.randn(rows, 40)
    assert (Linear(weight)(x) - F.linear(x, weight)).abs().max() < 1e-4


def test_the_fallback_multiplies(monkeypatch):
    monkeypatch.setattr(linear, "onednn_ops", lambda: None)
    weight, x = torch.randn(72, 40), torch.randn(3, 40)
    assert torch.equal(Linear(weight)(x), F.linear(x, weight))
