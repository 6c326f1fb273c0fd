"""What doctor measures: sensible numbers for every way that is there, and no busy process left behind."""

from __future__ import annotations

import psutil
import pytest

from lab.execution.linear import Linear
from lab.setup import measure


def test_small_products_are_timed_alone_and_beside_a_busy_process():
    import torch

    found = measure.small_products(seconds=0.02)
    assert Linear(torch.ones(1, 1)).way in found and "plain" in found
    assert all(0 < times.idle < 1e7 and 0 < times.beside < 1e7 for times in found.values())
    assert "beside one busy process" in str(found["plain"])


def test_the_busy_process_is_busy_and_ends():
    with measure.busy_process():
        (child,) = [p for p in psutil.Process().children() if "while True: pass" in p.cmdline()]
        assert child.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_peak_is_the_better_of_both_ways_to_multiply(monkeypatch):
    """Whatever a library reaches, no product of ours may come out above the peak."""
    if Linear(measure.torch.ones(1, 1)).way != "kernel":
        pytest.skip("there is one way only")
    for winner, whose in ((0, "torch's"), (1, "this project's")):
        asked, times = [], [1.0, 1.0, 1.0, 1.0]
        times[2 + winner] = 0.25  # at 2048
        monkeypatch.setattr(
            measure, "_best_seconds", lambda work, *_, a=asked, t=times: a.append(work()) or t[len(a) - 1]
        )
        found = measure.peak_flops("cpu", 0.01)
        assert found.rate == 2 * 2048**3 / 0.25 and f"2048 x 2048 matrices ({whose})" in found.how
        assert len(asked) == 4 and measure.torch.allclose(asked[0], asked[1], atol=1e-3)
