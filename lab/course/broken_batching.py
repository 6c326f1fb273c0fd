"""Engines with one real bug each, for the break-it exercises of notebooks 02 and 03. Reading on spoils them.

Each bug is a few lines planted into a healthy engine; its origin is a public thread, named beside it.
"""

from __future__ import annotations

from typing import Any

from lab.batching.control.protocol import Limits
from lab.batching.protocol import QueueView
from lab.course.broken import Plant, run_planted
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import Report
from lab.request import Request
from lab.workload import Workload


def run(work: Workload, model: Any, bug: str, **options: Any) -> Report:
    """The workload through the broken engine of exercise `bug`; options are those of `lab.run`."""
    if bug not in BUGS:
        raise BadPolicy(f"there is no broken engine {bug!r}; there are {', '.join(BUGS)}")
    return run_planted(work, model, BUGS[bug], **options)


def rows_go_on(engine: Engine) -> None:
    """Ends a static batch when every row has reached its end, and lets the finished ones sample until then.

    mistralai/mistral-inference pull request 270: rows after their end were sampled and handed out.
    """
    scheduler = engine.scheduler

    def stop_reason(request: Request, token: int | None) -> str | None:
        done = all(each.num_output + each.in_flight >= each.sampling.max_tokens for each in scheduler.running)
        return "length" if done else None

    engine._stop_reason = stop_reason  # type: ignore[method-assign]


class FromTheNewest:
    """A timer that each arrival sets back to its beginning."""

    name = "fixed"

    def __init__(self, delay: float):
        self.delay = delay

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The delay counts from the newest arrival."""
        newest = queue.oldest_arrival if queue.newest_arrival is None else queue.newest_arrival
        return Limits(None, newest + self.delay)


def timer_starts_again(engine: Engine) -> None:
    """Starts the timer of a dynamic batch again with each arrival, so that it measures gaps and not waiting.

    rudderlabs/rudder-server issue 78: batches of up to 32 and 20 ms came to 600 ms.
    """
    batching = engine.scheduler.axes.batching
    batching.control = FromTheNewest(batching.control.delay)


BUGS: dict[str, Plant] = {
    "02.4": rows_go_on,
    "03.4": timer_starts_again,
}
