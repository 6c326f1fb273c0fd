"""A few threads of our own that share one job's units of work, then wait ready for the next job.

A step is some 270 jobs of 5 to 500 µs each: too short for a thread pool that sleeps between jobs, and OpenMP's barriers
stall when another program wants a core. Here

* whoever has time claims the next unit (of `units`), so a slow or interrupted core simply does fewer;
* the caller works too and waits only for units that somebody has begun, never for a thread that has not come;
* an idle thread spins for microseconds, then offers its core to others again and again, then sleeps.

One int64 word is the whole protocol: | job number | units | next unit |. It is published in one store and claimed by
compare-and-swap, so a thread that is late by a whole job cannot take a unit of the next one.

| words of `control` | written by |
|---|---|
| 0 the word | the caller, when nothing is unfinished; claimants |
| 8 units done | claimants; reset by the caller before it publishes |
| 16, 17 function and arguments | the caller before it publishes |
"""

from __future__ import annotations

import atexit
import os
import threading
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

import numpy as np
import torch

from lab.execution.native import add, call, call_plain, compiled, load, store, swap_if, yield_address
from lab.execution.recording import current

BITS = 20  # of "units" and of "next unit"
LIMIT = 1 << BITS
JOBS = 1 << 22
STOP = -1
SPINS = 2_000  # looks at the word before the first offer of the core: some microseconds
OFFERS = 4_000  # offers before going to sleep: one or two milliseconds on an idle machine


@compiled("void(int64, int64)")
def _work_through(control, job):
    """Claim and compute units until `job` has none left to claim."""
    while True:
        word = load(control)
        unit = word & (LIMIT - 1)
        if word >> (2 * BITS) != job or unit >= (word >> BITS) & (LIMIT - 1):
            return
        function, arguments = load(control + 8 * 16), load(control + 8 * 17)
        if swap_if(control, word, word + 1):  # succeeds only if the two loads above belong to this job
            call(function, arguments, unit)
            add(control + 8 * 8, 1)


@compiled("void(int64, int64, int64, int64, int64)")
def _share(control, function, arguments, units, give_way):
    """Offer a job to everybody, claim units of it, and wait for those that others have begun."""
    job = ((load(control) >> (2 * BITS)) + 1) % JOBS
    store(control + 8 * 8, 0)
    store(control + 8 * 16, function)
    store(control + 8 * 17, arguments)
    store(control, (job << (2 * BITS)) | (units << BITS))
    _work_through(control, job)
    looks = 0
    while load(control + 8 * 8) < units:
        looks += 1
        if looks > SPINS:
            call_plain(give_way)


@compiled("int64(int64, int64, int64)")
def _serve(control, seen, give_way):
    """A helper's life until it has been idle for too long: returns the number of the last job it saw, or STOP."""
    looks = 0
    while looks < SPINS + OFFERS:
        word = load(control)
        if word == STOP:
            return STOP
        job = word >> (2 * BITS)
        if job != seen:
            seen, looks = job, 0
            _work_through(control, job)
        looks += 1
        if looks > SPINS:
            call_plain(give_way)
    return seen


@compiled("void(int64, int64, int64)")
def _alone(function, arguments, units):
    for unit in range(units):
        call(function, arguments, unit)


@compiled("void(int64, int64, int64, int64)")
def _share_each(control, jobs, count, give_way):
    """Job after job of a list of (function, arguments, units); one of a single unit is not worth offering."""
    for job in range(count):
        at = jobs + 24 * job
        function, arguments, units = load(at), load(at + 8), load(at + 16)
        if units == 1:
            call(function, arguments, 0)
        elif units > 1:
            _share(control, function, arguments, units, give_way)


@compiled("void(int64, int64)")
def _each_alone(jobs, count):
    for job in range(count):
        at = jobs + 24 * job
        _alone(load(at), load(at + 8), load(at + 16))


class Cores:
    """`count` cores: the caller's and `count - 1` helper threads, which exist once a first job came."""

    def __init__(self, count: int):
        self.count = count
        self._memory = np.zeros(64, np.int64)
        self._control = int(self._memory.ctypes.data)
        self._give_way = yield_address()
        self._busy, self._wake = threading.Lock(), threading.Event()
        self._helpers: list[threading.Thread] = []

    def run_rows(
        self,
        function: int,
        rows: int,
        arguments: Iterable[int],
        each: int = 1,
        times: int = 1,
        rows_are: int | None = None,
    ) -> None:
        """Call the callback at address `function` as f(address of the arguments, unit) for every unit from 0 on: there
        are `times` units for every `each` rows begun.

        The arguments are int64: `rows`, then numbers, and addresses of memory that the caller keeps alive meanwhile.

        The units may run in any order and at the same time. A second thread that comes while a job is running
        computes its own job alone, as does everybody inside `one_core()`.

        A job can be recorded and replayed for another number of rows. `rows_are` is TOKENS, SAMPLED or UNITS of
        recording.py; None is what the step's jobs are about at present.
        """
        words = array("q", (rows, *arguments))
        if (noted := current()) is not None:
            noted.add(function, words, each, times, rows_are)
        self._run(function, words, -(-rows // each) * times)

    def _run(self, function: int, words: array, units: int) -> None:
        address, _ = words.buffer_info()
        if not 1 < units < LIMIT or not self._claim():
            return _alone(function, address, units)
        try:
            _share(self._control, function, address, units, self._give_way)
        finally:
            self._busy.release()

    def replay(self, jobs: np.ndarray) -> None:
        """Run jobs (function, address of the arguments, units) [n, 3] one after the other, each as by `run_rows`.

        Inside `in_turns` the helpers are given back after every job, otherwise at the end.
        """
        if getattr(_local, "turns", False) and len(jobs) > 1:
            for job in range(len(jobs)):
                self.replay(jobs[job : job + 1])
            return
        address, count = int(jobs.ctypes.data), len(jobs)
        if not self._claim():
            return _each_alone(address, count)
        try:
            _share_each(self._control, address, count, self._give_way)
        finally:
            self._busy.release()

    def _claim(self) -> bool:
        """Whether this thread may use the helpers now; then they are awake, and `_busy` is to be released."""
        if self.count == 1 or getattr(_local, "alone", False) or not self._busy.acquire(blocking=False):
            return False
        try:
            if not self._helpers:
                self._start()
            if not self._wake.is_set():
                self._wake.set()
        except BaseException:
            self._busy.release()
            raise
        return True

    def _start(self) -> None:
        for index in range(1, self.count):
            self._helpers.append(threading.Thread(target=self._help, name=f"lab-core-{index}", daemon=True))
            self._helpers[-1].start()
        atexit.register(self.stop)

    def _help(self) -> None:
        seen = 0
        while (seen := _serve(self._control, seen, self._give_way)) != STOP:
            self._wake.clear()
            if self._memory[0] >> (2 * BITS) == seen:  # a job that comes just now is computed without this helper
                self._wake.wait()

    def stop(self) -> None:
        """End the helpers; a later job starts them again."""
        with self._busy:
            if self._helpers:
                self._memory[0] = STOP
                for helper in self._helpers:
                    while helper.is_alive():  # another helper, on its way to sleep, may clear the event once more
                        self._wake.set()
                        helper.join(0.01)
                self._memory[0] = 0
                self._helpers = []


_local = threading.local()


def one_core() -> AbstractContextManager[None]:
    """Inside, this thread computes its jobs by itself and leaves the other cores to others."""
    return _marked("alone")


def in_turns() -> AbstractContextManager[None]:
    """Inside, this thread leaves the helpers to others between any two of its jobs."""
    return _marked("turns")


@contextmanager
def _marked(how: str) -> Iterator[None]:
    before = getattr(_local, how, False)
    setattr(_local, how, True)
    try:
        yield
    finally:
        setattr(_local, how, before)


@lru_cache(maxsize=1)
def all_cores() -> Cores:
    """The cores of this process, as many as torch uses (OMP_NUM_THREADS sets both)."""
    return Cores(torch.get_num_threads())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=all_cores.cache_clear)  # a forked process has the memory, but no helpers
