"""The same function for many inputs on all cores. Simulation is pure Python, so threads would not help.

The workers are plain interpreters that read pickles from their standard input. `multiprocessing` would import the
caller's main script again (a script then needs a guard, and a notebook has none) or fork a process in which torch
has started threads; neither is wanted here. What other processes cannot do, because it was defined in a notebook
or because there is one core only, is done in this one.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import LabError
from lab.setup.machine import usable_cores

LARGEST = 64 << 20  # bytes of pickled input that are still sent to workers: below the weights of a real model


class Outcome(NamedTuple):
    """What came of one input: its value, or one sentence that says what went wrong."""

    value: Any
    error: str | None = None


def attempt(function: Callable[[Any, Any], Any], shared: Any, task: Any) -> Outcome:
    """Call, and keep an error as a sentence."""
    try:
        return Outcome(function(shared, task))
    except LabError as error:
        return Outcome(None, str(error))
    except Exception as error:  # a policy of the learner's may raise anything, and the other inputs go on
        return Outcome(None, f"{type(error).__name__}: {error}")


def outcomes(
    function: Callable[[Any, Any], Any], shared: Any, tasks: Sequence[Any], processes: int | None = None
) -> Iterator[tuple[int, Outcome]]:
    """`function(shared, task)` for every task, as (index of the task, outcome) in the order they are ready.

    `function` lies at the top level of a module. `processes` 1 computes here; by default there is one per core.
    """
    number = min(len(tasks), processes or usable_cores())
    payload = _payload(function, shared, tasks) if number > 1 and sys.executable else None
    if payload is None:
        for index, task in enumerate(tasks):
            yield index, attempt(function, shared, task)
        return
    yield from _Pool(payload, tasks, number).outcomes()


def _payload(function: Any, shared: Any, tasks: Sequence[Any]) -> bytes | None:
    """What a worker needs first; None where something in it could not be found by another process."""
    try:
        payload = pickle.dumps((function, shared))
        if b"__main__" in payload + pickle.dumps(list(tasks)) or len(payload) > LARGEST:
            return None
    except Exception:  # pickling calls into objects of any kind: lambdas, open files, tensors
        return None
    return payload


class _Worker:
    """An interpreter that has received `payload`. Raises EOFError where it ended meanwhile."""

    def __init__(self, payload: bytes):
        self.ended = False
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.simulation.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )
        _send(self.process.stdin, pickle.dumps(sys.path))
        _send(self.process.stdin, payload)

    def ask(self, task: Any) -> Outcome:
        _send(self.process.stdin, pickle.dumps(task))
        try:
            return Outcome(*_receive(self.process.stdout))
        except EOFError:
            self.ended = True
            raise

    def end(self) -> int:
        """Stop it, if it has not ended by itself; returns its exit status."""
        try:
            status = self.process.wait(0.2 if self.ended else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        return status


class _Pool:
    """Threads that each keep one worker busy; they only wait, so they cost nothing."""

    def __init__(self, payload: bytes, tasks: Sequence[Any], number: int):
        self.payload, self.tasks, self.number = payload, tasks, number
        self.left: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ready: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()
        self.workers: list[_Worker] = []
        self.stopped = False
        for index in range(len(tasks)):
            self.left.put(index)

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        for _ in range(self.number):
            threading.Thread(target=self._serve, daemon=True).start()
        try:
            for _ in self.tasks:
                yield self.ready.get()
        finally:
            self.stopped = True
            for worker in list(self.workers):
                worker.end()

    def _serve(self) -> None:
        worker = None
        while not self.stopped:
            try:
                index = self.left.get_nowait()
            except queue.Empty:
                return
            try:
                if worker is None:
                    worker = _Worker(self.payload)
                    self.workers.append(worker)
                outcome = worker.ask(self.tasks[index])
            except (OSError, EOFError) as error:
                what = f"exit status {worker.end()}" if worker else str(error)
                outcome, worker = Outcome(None, f"its process ended early ({what})"), None
            except Exception as error:
                outcome = Outcome(None, f"{type(error).__name__}: {error}")
            self.ready.put((index, outcome))


def _send(pipe: Any, data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    """The next pickle. Raises EOFError where there is none."""
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    return pickle.loads(pipe.read(int.from_bytes(size, "little")))


def serve() -> None:
    """The worker: paths, then function and shared input, then tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, and ends us
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a policy prints must not come between the answers
    source = sys.stdin.buffer
    sys.path[:] = _receive(source)
    try:
        function, shared = _receive(source)
    except Exception as error:  # unpickling imports the caller's modules
        reason = f"cannot be used in another process ({type(error).__name__}: {error}): give processes=1"
        function, shared = _refuse, reason
    while True:
        try:
            task = _receive(source)
        except EOFError:
            return
        outcome = attempt(function, shared, task)
        _send(answers, pickle.dumps(tuple(outcome)))


def _refuse(reason: str, task: Any) -> None:
    raise LabError(reason)


if __name__ == "__main__":
    serve()
