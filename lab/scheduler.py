"""The scheduler composes the axes into the plan of one step.

    batching    may anybody join now, and how many?
    ordering    who of those that wait?
    chunking    how many tokens may this step compute?
    preemption  who yields when the memory cannot hold them all?

Reading order: `Scheduler.schedule`, then `_fill`. Everything else is bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.batching.protocol import Admission, Batching, QueueView
from lab.chunking import Chunking, StepView
from lab.errors import BadPolicy
from lab.lanes import Lane
from lab.memory.protocol import Memory
from lab.ordering.protocol import Ordering
from lab.ordering.queue import WaitingQueue
from lab.plan import Row, StepPlan
from lab.prediction import Prediction
from lab.preemption import Preemption
from lab.request import Request
from lab.trace import StepTrace

FOREVER = 1 << 30  # steps


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
        """Fill in what follows from `batching`; raises BadPolicy for a combination that makes no sense."""
        self.attention = self.attention or self.batching.attention
        self.delivery = self.delivery or self.batching.delivery
        name = self.batching.name
        if self.attention not in ("packed", "padded"):
            raise BadPolicy(f"attention {self.attention!r} is not known; there are packed and padded")
        if self.delivery not in ("token", "batch"):
            raise BadPolicy(f"delivery {self.delivery!r} is not known; there are token and batch")
        if self.delivery == "batch" and not self.batching.carries_finished:
            raise BadPolicy(f"delivery 'batch' waits for the end of the batch, and {name} batching has none")
        if self.delivery == "batch" and getattr(self.chunking, "paces_tokens", False):
            raise BadPolicy(
                f"{self.chunking.name} chunking paces the tokens that users get, and with {name} batching they get "
                f"them when the batch ends: choose delivery 'token', or whole or budget chunking"
            )


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
        wanted = request.remaining
        return wanted if self.left is None or wanted <= self.left else self.left

    def add(self, request: Request, count: int) -> None:
        self.rows[request.id] = Row(request, request.num_computed, count, count == request.remaining)
        if self.left is not None:
            self.left -= count

    def completes(self, request: Request) -> bool:
        """This step computes all that `request` has left, and its blocks for that are allocated."""
        row = self.rows.get(request.id)
        return row is not None and row.samples

    def give_back(self, request: Request) -> None:
        """A victim's tokens return to the budget, so that the step can still be filled."""
        row = self.rows.pop(request.id, None)
        if row is not None and self.left is not None:
            self.left += row.num_tokens


class Scheduler:
    """Queue, batch and the rules that hold for every combination of axes."""

    def __init__(self, axes: Axes, memory: Memory, predict: Prediction | None = None):
        self.axes, self.memory = axes, memory
        self.predict: Prediction = (lambda plan: None) if predict is None else predict
        for policy in self._policies:
            if hasattr(policy, "reset"):
                policy.reset()
        self.waiting = WaitingQueue(axes.ordering)
        self._bind_order()
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
        elif request.status in ("waiting", "preempted"):
            self.waiting.remove(request)
        self.memory.release(request)
        request.status = "finished"

    def finish(self, request: Request) -> None:
        """A running request has its last token: blocks go back, and a static batch carries its row on."""
        self.remove(request)
        if self.axes.batching.carries_finished:
            self.carried.append(request)

    def fork(self, parent: Request, child: Request) -> None:
        """`child` starts as a running copy of `parent` whose prompt is computed; it may exceed the batch limit."""
        self.memory.fork(parent, child)
        child.status = "running"
        self.running.append(child)

    def end_of_batch(self) -> list[Request]:
        """When nobody runs any more (or the batch is no longer one), its finished requests, once."""
        if self.running and self.axes.batching.carries_finished:
            return []
        ended, self.carried = self.carried, []
        return ended

    def reorder(self, ordering: Ordering, now: float) -> None:
        """Change the order while requests wait."""
        self.axes.ordering = ordering
        self._bind_order()
        self.waiting.reorder(ordering, now)

    def _bind_order(self) -> None:
        """Orders that know the prefix cache are given its match: cached tokens of a waiting request."""
        if hasattr(self.axes.ordering, "bind"):
            size = self.memory.block_size
            self.axes.ordering.bind(lambda request: len(self.memory.match(request)) * size, size)

    @property
    def _policies(self) -> tuple:
        return self.axes.batching, self.axes.chunking, self.axes.ordering, self.axes.preemption

    def observe(self, step: StepTrace) -> None:
        """Show a step that has been carried out to every policy that learns, and to the prediction.

        A stretch is made only where no policy asks for predictions, so these may miss it.
        """
        for learner in self._policies if step.stretch else (*self._policies, self.predict):
            if hasattr(learner, "observe"):
                learner.observe(step)

    # -- one step ------------------------------------------------------------------------------------------
    def schedule(self, now: float, more_expected: bool, lane: Lane | None = None, stretches: bool = False) -> Schedule:
        """Plan the next step over the requests that are not in flight, of one lane if there are several.

        With `stretches` the plan's `repeat` says how often it may be carried out if nobody arrives.
        """
        wait = self.waiting
        queue = QueueView(now, len(wait), wait.oldest_arrival, len(self.running), more_expected, wait.newest_arrival)
        admission = self.axes.batching.admit(queue)
        if lane is not None:
            admission = admission._replace(slots=lane.slots(admission.slots, self.running))
        decodes, prompts = [], []
        for request in self.running:
            if not request.in_flight and (lane is None or lane.takes(request)):
                (decodes if request.remaining == 1 else prompts).append(request)
        view = StepView(now, decodes, prompts, self.predict, min(admission.slots, queue.waiting))
        step = _Step(self.axes.chunking.budget(view))
        out = Schedule(None)
        if self.axes.chunking.prompts_first:
            self._fill(step, prompts, out)
            self._admit(step, admission, now, out)
            if not step.rows:
                self._fill(step, decodes, out)
        else:
            self._fill(step, decodes, out)
            self._fill(step, prompts, out)
            self._admit(step, admission, now, out)
        for request, _ in out.admitted if lane is not None else ():
            lane.admitted(request)
        if step.rows:
            out.plan = self._shape(list(step.rows.values()))
            out.plan.copies = self.memory.take_copies()
            if stretches and not out.preempted:
                out.plan.repeat = self.stable_for(out.plan, admission.slots > len(out.admitted))
        else:
            out.wake_at = admission.wake_at
        return out

    def stable_for(self, plan: StepPlan, seats_free: bool) -> int:
        """How many times `plan`, just made, would be made again if nobody arrives: 1 unless every axis is steady.

        All who run decode, up to the first last token, and take no blocks but free ones. `steady` on a policy says
        that its answer does not change meanwhile and that it need not see each of these steps. Whoever waits must
        keep waiting: no seat is free, or the first in an unchanging order finds no room, which only gets less.
        """
        if plan.copies or len(plan.rows) != len(self.running) + len(self.carried):
            return 1
        axes = self.axes
        if not (getattr(axes.batching, "steady", False) and getattr(axes.chunking, "steady", False)):
            return 1
        if hasattr(axes.ordering, "observe") or hasattr(axes.preemption, "observe"):
            return 1
        unchanging = axes.ordering.static and not hasattr(axes.ordering, "max_wait") and self.memory.steady
        if self.waiting and seats_free and not unchanging:
            return 1
        steps = FOREVER
        for row in plan.rows:
            request = row.request
            if row.num_tokens:
                if row.num_tokens > 1 or not row.samples or request.num_computed < request.high_water:
                    return 1
                if request.sampling.n > 1 and not request.num_output:
                    return 1
                if row.start < request.num_prompt and not self.memory.steady:
                    return 1  # it may complete a block that a cache knows already, and then hold one less
                steps = min(steps, request.sampling.max_tokens - request.num_output)
        return self._within_free(plan, steps)

    def _within_free(self, plan: StepPlan, steps: int) -> int:
        """Most of `steps` repetitions whose further blocks are free now (a cache's blocks are evicted step by step)."""
        blocks_for, free = self.memory.blocks_for, self.memory.counts().free
        tables = [(row.request.num_computed, len(row.request.block_table)) for row in plan.rows if row.num_tokens]

        def fits(count: int) -> bool:
            return sum(max(0, blocks_for(start + count) - held) for start, held in tables) <= free

        if steps == 1 or fits(steps):
            return steps
        low, high = 1, steps  # fits(low), not fits(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _fill(self, step: _Step, requests: Iterable[Request], out: Schedule) -> None:
        """Give each running request its share of the budget, preempting others where a block is missing."""
        for request in requests:
            if step.left == 0:
                return
            if request.status == "running":
                self._take_share(step, request, out)

    def _take_share(self, step: _Step, request: Request, out: Schedule) -> None:
        """Preempt until `request` can hold its share of the step; none if it had to yield or must wait itself."""
        while True:
            count = step.share(request)  # anew each time: a victim's tokens return to the budget
            if self.memory.can_grow(request, request.num_computed + count):
                self.memory.grow(request, request.num_computed + count)
                return step.add(request, count)
            oldest = min(self.running, key=lambda running: running.order)
            candidates = [r for r in self.running if r is not oldest and not r.in_flight]
            if not candidates:
                return  # only requests in flight hold blocks: try again when they have landed
            victim = self.axes.preemption.victim(candidates)
            self._preempt(step, victim, out)
            if victim is request:
                return

    def _preempt(self, step: _Step, victim: Request, out: Schedule) -> None:
        """Take a request out of the batch; its computed tokens move to the host or are dropped."""
        step.give_back(victim)
        self.running.remove(victim)
        dropped = 0
        if not (self.axes.preemption.on_host and self.memory.swap_out(victim)):
            dropped, victim.num_computed = victim.num_computed, 0
            self.memory.release(victim)
        out.preempted.append((victim, dropped))
        victim.num_preemptions += 1
        victim.status = "preempted"
        self.waiting.push(victim, victim.arrival_time)

    def _candidates(self, admission: Admission, now: float) -> list[Request]:
        """Who may join: the first in order, or those the batching policy picks out of all that wait."""
        if admission.select is None:
            return self.waiting.first(admission.slots, now)
        return admission.select(self.waiting.first(len(self.waiting), now))[: admission.slots]

    def _admit(self, step: _Step, admission: Admission, now: float, out: Schedule) -> None:
        """Let waiting requests join, in order; the first that does not fit holds up those behind it.

        Nobody joins in a step that preempts: the victim's blocks are wanted by those who run.
        """
        if admission.slots < 1 or not self.waiting or out.preempted:
            return
        promised = sum(self._owed(request) for request in self.running if not step.completes(request))
        for request in self._candidates(admission, now):
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
