"""What doctor measures: sensible numbers for every way that is there, and no busy process left behind."""

from __future__ import annotations

import psutil

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
