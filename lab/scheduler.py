"""The scheduler composes the axes into the plan of one step.

    batching    may anybody join now, and how many?
    ordering    who of those that wait?
    chunking    how many tokens may this step compute?
    preemption  who yields when the memory cannot hold them all?

Reading order: `Scheduler.schedule`, then `_fill`. Everything else is bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lab.batching.protocol import Batching, QueueView
from lab.chunking import Chunking, StepView
from lab.memory.protocol import Memory
from lab.ordering.protocol import Ordering
from lab.ordering.queue import WaitingQueue
from lab.plan import Row, StepPlan
from lab.preemption import Preemption
from lab.request import Request


@dataclass(slots=True)
class Axes:
    """One policy per axis. `attention` and `delivery` follow from `batching` unless given."""

    batching: Batching
    chunking: Chunking
    ordering: Ordering
    preemption: Preemption
    attention: str = ""
    delivery: str = ""

    def __post_init__(self) -> None:
        self.attention = self.attention or self.batching.attention
        self.delivery = self.delivery or self.batching.delivery


@dataclass(slots=True)
class Schedule:
    """A step's plan, or None and the time at which asking again is worth it although nothing happened."""

    plan: StepPlan | None
    wake_at: float | None = None
    admitted: list[tuple[Request, int]] = field(default_factory=list)  # with the tokens found in a cache
    preempted: list[tuple[Request, int]] = field(default_factory=list)  # with the computed tokens dropped


class _Step:
    """The plan under construction and the budget it has left (None = no limit)."""

    def __init__(self, budget: int | None):
        self.rows: dict[int, Row] = {}
        self.left = budget

    def share(self, request: Request) -> int:
        """Tokens of `request` that still fit into the step."""
        return request.remaining if self.left is None else min(request.remaining, self.left)

    def add(self, request: Request, count: int) -> None:
        self.rows[request.id] = Row(request, request.num_computed, count, samples=count == request.remaining)
        if self.left is not None:
            self.left -= count

    def give_back(self, request: Request) -> None:
        """A victim's tokens return to the budget, so that the step can still be filled."""
        row = self.rows.pop(request.id, None)
        if row is not None and self.left is not None:
            self.left += row.num_tokens


class Scheduler:
    """Queue, batch and the rules that hold for every combination of axes."""

    def __init__(self, axes: Axes, memory: Memory, predict: Callable[[StepPlan], float] | None = None):
        self.axes, self.memory, self.predict = axes, memory, predict
        self.waiting = WaitingQueue(axes.ordering)
        self.running: list[Request] = []  # in admission order
        self.carried: list[Request] = []  # finished, but still computed by a static batch

    # -- queue ---------------------------------------------------------------------------------------------
    def add(self, request: Request, now: float) -> None:
        """A request starts to wait. Raises NeverFits when it could not even run alone."""
        self.memory.check_fits(request)
        self.waiting.push(request, now)

    def remove(self, request: Request) -> None:
        """Forget a request that is not in flight, whatever it was doing."""
        if request.status == "running":
            self.running.remove(request)
            self.memory.release(request)
        elif request.status in ("waiting", "preempted"):
            self.waiting.remove(request)
        request.status = "finished"

    def finish(self, request: Request) -> None:
        """A running request has its last token: blocks go back, and a static batch carries its row on."""
        self.remove(request)
        if self.axes.batching.carries_finished:
            self.carried.append(request)

    def end_of_batch(self) -> list[Request]:
        """When nobody runs any more (or the batch is no longer one), its finished requests, once."""
        if self.running and self.axes.batching.carries_finished:
            return []
        ended, self.carried = self.carried, []
        return ended

    # -- one step ------------------------------------------------------------------------------------------
    def schedule(self, now: float, more_expected: bool) -> Schedule:
        """Plan the next step over the requests that are not in flight."""
        view = QueueView(now, len(self.waiting), self.waiting.oldest_arrival, len(self.running), more_expected)
        admission = self.axes.batching.admit(view)
        mine = [request for request in self.running if not request.in_flight]
        decodes = [request for request in mine if request.remaining == 1]
        prompts = [request for request in mine if request.remaining > 1]
        step = _Step(self.axes.chunking.budget(StepView(now, decodes, prompts, self.predict)))
        out = Schedule(None)
        if self.axes.chunking.prompts_first:
            self._fill(step, prompts, out)
            self._admit(step, admission.slots, now, out)
            if not step.rows:
                self._fill(step, decodes, out)
        else:
            self._fill(step, decodes, out)
            self._fill(step, prompts, out)
            if not out.preempted:
                self._admit(step, admission.slots, now, out)
        if step.rows:
            out.plan = self._shape(list(step.rows.values()))
        else:
            out.wake_at = admission.wake_at
        return out

    def _fill(self, step: _Step, requests: Iterable[Request], out: Schedule) -> None:
        """Give each running request its share of the budget, preempting others where a block is missing."""
        for request in requests:
            count = step.share(request)
            if count == 0:
                return
            if request.status == "running" and self._make_room(step, request, request.num_computed + count, out):
                self.memory.grow(request, request.num_computed + count)
                step.add(request, count)

    def _make_room(self, step: _Step, request: Request, upto: int, out: Schedule) -> bool:
        """Preempt until `request` can hold `upto` tokens; False when it had to yield or must wait itself."""
        while not self.memory.can_grow(request, upto):
            oldest = min(self.running, key=lambda running: running.order)
            candidates = [r for r in self.running if r is not oldest and not r.in_flight]
            if not candidates:
                return False  # only requests in flight hold blocks: try again when they have landed
            victim = self.axes.preemption.victim(candidates)
            self._preempt(step, victim, out)
            if victim is request:
                return False
        return True

    def _preempt(self, step: _Step, victim: Request, out: Schedule) -> None:
        step.give_back(victim)
        self.running.remove(victim)
        self.memory.release(victim)
        out.preempted.append((victim, victim.num_computed))
        victim.num_computed = 0
        victim.num_preemptions += 1
        victim.status = "preempted"
        self.waiting.push(victim, victim.arrival_time)

    def _admit(self, step: _Step, slots: int, now: float, out: Schedule) -> None:
        """Let waiting requests join, in order; the first that does not fit holds up those behind it."""
        if slots < 1 or not self.waiting:
            return
        promised = sum(self._owed(request) for request in self.running)
        for request in self.waiting.first(slots, now):
            if step.left == 0 and not self.axes.batching.admits_together:
                return
            if not self.memory.can_admit(request, promised):
                return
            self.waiting.remove(request)
            out.admitted.append((request, self.memory.admit(request)))
            request.status = "running"
            self.running.append(request)
            count = step.share(request)
            if count:
                self.memory.grow(request, request.num_computed + count)
                step.add(request, count)
            promised += self._owed(request)

    def _owed(self, request: Request) -> int:
        """Blocks an admitted request still needs for the tokens it already has."""
        return max(0, self.memory.blocks_for(request.num_tokens) - len(request.block_table))

    def _shape(self, rows: list[Row]) -> StepPlan:
        """Carry finished rows along, and pad every row to the widest where the kernel is a rectangle."""
        rows += [Row(request, request.num_computed, 0, samples=False) for request in self.carried]
        if self.axes.attention == "padded":
            width = max(row.num_tokens for row in rows)
            for row in rows:
                row.padding = width - row.num_tokens
        else:
            for row in rows:
                row.padding = 0 if row.num_tokens else 1
        return StepPlan(rows, self.axes.attention)
