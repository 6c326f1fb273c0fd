"""Engines with one real bug each, for the break-it exercises. Reading on spoils them.

`run(work, model, "04.4", batching=lab.Continuous(8))` is `lab.run` with the bug of exercise 04.4. Each bug is a few
lines planted into a healthy engine; its origin is a public thread, named beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.batching.protocol import Admission, QueueView
from lab.clock import Driver, make_clock
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import Report
from lab.request import Request
from lab.running import build_engine, with_rate
from lab.workload import Workload

Plant = Callable[[Engine], None]


def run(work: Workload, model: Any, bug: str, **options: Any) -> Report:
    """The workload through the broken engine of exercise `bug`; options are those of `lab.run`."""
    if bug not in BUGS:
        raise BadPolicy(f"there is no broken engine {bug!r}; there are {', '.join(BUGS)}")
    return run_planted(work, model, BUGS[bug], **options)


def run_planted(
    work: Workload, model: Any, plant: Plant, *, slo: dict | None = None, clock: str | None = None, **options: Any
) -> Report:
    """`lab.run` with `plant` applied to the engine before it is driven."""
    work = with_rate(work, model)
    requests = work.requests(model)
    engine = build_engine(model, requests, **options)
    plant(engine)
    priced = hasattr(model, "price")
    timer = make_clock(clock or ("virtual" if priced else "wall"))
    engine.trace.meta |= {"clock": timer.name, "measured": not priced, "workload": work.name, "rate": work.rate}
    return Report.from_trace(Driver(engine, requests, timer).run(), slo)


def without_cache(engine: Engine) -> None:
    """No bug, but an engine without a KV cache: what a step computed is forgotten when the step ends.

    Every token is then computed again for every further token. Needs whole prompts: a chunk would be forgotten too.
    """
    memory = engine.memory

    def forget(request: Request) -> None:
        if request.remaining == 0:
            memory.release(request)
            request.num_computed = 0

    memory.committed = forget  # type: ignore[method-assign]


def one_too_many(engine: Engine) -> None:
    """Asks whether the limit is reached before the newest token is counted: `max_tokens` + 1 tokens come out.

    EricLBuehler/mistral.rs issue 1539.
    """
    healthy = engine._stop_reason

    def stop_reason(request: Request, token: int | None) -> str | None:
        reason = healthy(request, token)
        return None if reason == "length" and request.num_output == request.sampling.max_tokens else reason

    engine._stop_reason = stop_reason  # type: ignore[method-assign]


def cache_lost_with_each_block(engine: Engine) -> None:
    """Forgets a request's keys and values whenever its last block is full. Tokens stay right, work is not saved.

    Of the kind of rasbt/LLMs-from-scratch issue 913, where the cache was there and not used.
    """
    memory = engine.memory

    def forget_full_tables(request: Request) -> None:
        full = request.num_computed % memory.block_size == 0
        if full and request.remaining == 0 and request.num_output:
            memory.release(request)
            request.num_computed = 0

    memory.committed = forget_full_tables  # type: ignore[method-assign]


class LatchedFull:
    """Continuous batching that notes when the batch is full, and clears the note only when it is empty.

    sgl-project/sglang issue 35537 (`batch_is_full` stays set); PR 22539 describes the drain that follows.
    """

    name = "continuous"
    attention = "packed"
    delivery = "token"
    carries_finished = False
    admits_together = False

    def __init__(self, max_running: int = 16):
        self.max_running = max_running
        self.batch_is_full = False

    def admit(self, view: QueueView) -> Admission:
        """Fill up to `max_running`, then nothing until everybody has left."""
        if view.running == 0:
            self.batch_is_full = False
        elif view.running >= self.max_running:
            self.batch_is_full = True
        return Admission(0 if self.batch_is_full else self.max_running - view.running)


def latched_full(engine: Engine) -> None:
    """See LatchedFull."""
    engine.scheduler.axes.batching = LatchedFull(engine.scheduler.axes.batching.max_running)


BUGS: dict[str, Plant] = {
    "00.3": one_too_many,
    "01.4": cache_lost_with_each_block,
    "04.4": latched_full,
}
