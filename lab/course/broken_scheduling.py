"""Engines with one scheduling bug each, for the break-it exercises of notebooks 07 and 09. Reading on spoils them.

`run(work, model, "07.4", …)` is `lab.run` with that bug planted; see `broken.py` for how.
"""

from __future__ import annotations

from typing import Any

from lab.course.broken import Plant, run_planted
from lab.engine import Engine
from lab.errors import BadPolicy
from lab.metrics import Report
from lab.ordering.protocol import Ordering
from lab.ordering.queue import WaitingQueue
from lab.request import Request
from lab.scheduler import Schedule
from lab.workload import Workload


def run(work: Workload, model: Any, bug: str, **options: Any) -> Report:
    """The workload through the broken engine of exercise `bug`; options are those of `lab.run`."""
    if bug not in BUGS:
        raise BadPolicy(f"there is no broken engine {bug!r}; there are {', '.join(BUGS)}")
    return run_planted(work, model, BUGS[bug], **options)


def exact_fit_is_split(engine: Engine) -> None:
    """A prompt that fits the rest of the budget exactly counts as split: no token yet, and an empty rest to compute.

    huggingface/transformers, continuous_batching/scheduler.py asked `len(request_tokens) < token_budget` where `<=`
    was meant. Here the empty rest becomes the prompt's last token, computed again.
    """
    scheduler, memory = engine.scheduler, engine.memory
    healthy_schedule, healthy_committed = scheduler.schedule, memory.committed
    split: set[int] = set()

    def schedule(now: float, more_expected: bool, *more: Any) -> Schedule:
        out = healthy_schedule(now, more_expected, *more)
        budget = getattr(scheduler.axes.chunking, "max_tokens", None)
        if out.plan is not None and out.plan.num_tokens == budget:
            last = out.plan.rows[-1]
            if last.samples and last.num_tokens > 1:
                last.samples = False
                split.add(last.request.id)
        return out

    def committed(request: Request) -> None:
        healthy_committed(request)
        if request.id in split:
            split.discard(request.id)
            request.num_computed -= 1

    scheduler.schedule = schedule  # type: ignore[method-assign]
    memory.committed = committed  # type: ignore[method-assign]


class ForgetfulQueue(WaitingQueue):
    """A request that is preempted and put back counts its age from that moment, not from its arrival."""

    def __init__(self, ordering: Ordering, window: int = 128):
        super().__init__(ordering, window)
        self._now = 0.0
        self._since: dict[int, float] = {}

    def push(self, request: Request, now: float) -> None:
        """Note since when it waits; a preempted request is pushed again and starts anew."""
        self._since[request.id] = self._now if request.num_preemptions else request.arrival_time
        super().push(request, now)

    def first(self, count: int, now: float) -> list[Request]:
        """Those over the limit first, oldest first, by the wrong age."""
        self._now = now
        limit = getattr(self.ordering, "max_wait", float("inf"))
        late = [request for request in self if now - self._since[request.id] >= limit]
        rest = [entry[-1] for entry in self._by_key if entry[-1] not in late]
        return [*late, *rest][:count]


def age_starts_anew(engine: Engine) -> None:
    """See ForgetfulQueue. The mistake that NVIDIA/TensorRT-LLM PR 13096 takes care not to make.

    It keeps the original enqueue time of a request that is put back, so that its age goes on growing.
    """
    engine.scheduler.waiting = ForgetfulQueue(engine.scheduler.axes.ordering)


BUGS: dict[str, Plant] = {"07.4": exact_fit_is_split, "09.4": age_starts_anew}
