"""Units of a job are computed once each, whoever computes them, and helpers come and go unharmed."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest

from lab.execution import cores
from lab.execution.cores import Cores, in_turns, one_core
from lab.execution.native import add, callback, load


@callback()
def count_unit(arguments, unit):
    """Add one to word `unit` of the array at arguments[1], after some work."""
    total = 0
    for i in range(load(arguments + 16)):
        total += i * unit
    add(load(arguments + 8) + 8 * unit, 1 + (total & 0))


@pytest.fixture
def three():
    made = Cores(3)
    yield made
    made.stop()


def run(on: Cores, units: int, work: int = 100) -> np.ndarray:
    counts = np.zeros(max(units, 1) + 1, np.int64)
    on.run_rows(count_unit.address, units, [counts.ctypes.data, work])
    return counts


@pytest.mark.parametrize("units", [0, 1, 2, 3, 100, 5000])
def test_every_unit_is_computed_once(three, units):
    for _ in range(20):
        counts = run(three, units)
        assert counts[:units].tolist() == [1] * units and counts[units] == 0


def test_many_jobs_one_after_the_other(three):
    for job in range(3000):
        assert run(three, 1 + job % 7, work=job % 50)[:-1].tolist() == [1] * (1 + job % 7)


def test_helpers_that_fell_asleep_are_not_waited_for_and_wake_up(three):
    for _ in range(5):
        assert run(three, 50).sum() == 50
        time.sleep(0.05)  # longer than a helper looks for work
    assert all(helper.is_alive() for helper in three._helpers)


def test_stopping_wakes_helpers_again_and_again(three):
    """A helper on its way to sleep may clear the event that stop() has just set for another one."""
    run(three, 50)
    until = time.monotonic() + 20
    while len(three._wake._cond._waiters) < 2 and time.monotonic() < until:
        time.sleep(0.01)  # until both sleep
    wake, lost = three._wake.set, []
    three._wake.set = lambda: lost.append(None) if len(lost) < 3 else wake()
    stopper = threading.Thread(target=three.stop, daemon=True)
    stopper.start()
    stopper.join(5)
    assert not stopper.is_alive() and len(lost) == 3


def test_two_callers_at_once_both_get_their_results(three):
    results: list[bool] = []

    def caller() -> None:
        results.append(all(run(three, 40, work=2000).sum() == 40 for _ in range(50)))

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_inside_one_core_no_helper_is_started():
    made = Cores(2)
    with one_core():
        assert run(made, 30).sum() == 30
    assert made._helpers == []
    run(made, 30)
    assert len(made._helpers) == 1
    made.stop()


def test_stopping_and_going_on(three):
    run(three, 10)
    three.stop()
    assert three._helpers == []
    assert run(three, 10).sum() == 10


def test_more_units_than_the_word_can_hold_are_computed_by_the_caller():
    made = Cores(2)
    counts = np.zeros(cores.LIMIT, np.int64)
    made.run_rows(count_unit.address, cores.LIMIT, [counts.ctypes.data, 0])
    assert counts.min() == counts.max() == 1
    assert made._helpers == []


def test_a_helper_that_cannot_start_leaves_the_cores_usable(monkeypatch):
    made = Cores(2)
    with monkeypatch.context() as patched:

        def refuse(self):
            raise RuntimeError("can't start new thread")

        patched.setattr(Cores, "_start", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            run(made, 5)
    assert not made._busy.locked() and run(made, 5).sum() == 5
    made.stop()


@pytest.mark.parametrize("turns", [False, True])
def test_a_replay_keeps_the_helpers_unless_it_takes_turns(three, monkeypatch, turns):
    counts = np.zeros((4, 21), np.int64)
    words = np.array([[20, row.ctypes.data, 50] for row in counts], np.int64)
    jobs = np.array([[count_unit.address, row.ctypes.data, 20] for row in words], np.int64)
    claims, claim = [], Cores._claim
    monkeypatch.setattr(Cores, "_claim", lambda self: claims.append(None) or claim(self))
    with in_turns() if turns else nullcontext():
        three.replay(jobs)
    assert counts.tolist() == [[1] * 20 + [0]] * 4
    assert len(claims) == (4 if turns else 1) and not three._busy.locked()
