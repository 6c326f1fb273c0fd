"""Drives an engine step by step on a virtual clock and checks after each step what must always hold."""

from __future__ import annotations

from collections.abc import Iterable

from oracles import HashModel, solo

from lab.chunking import TokenBudget
from lab.engine import Engine, Flight
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.trace import StepTrace


def make_engine(blocks: int = 64, block_size: int = 4, eos: Iterable[int] = (), **axes) -> Engine:
    """An engine over HashRunner, without end-of-sequence ids unless given, recounting its books every step."""
    engine = build_engine(HashModel(frozenset(eos)), blocks=blocks, block_size=block_size, **axes)
    engine.check_every_step = True
    engine.more_expected = False
    return engine


def request(id: int, length: int, max_tokens: int = 4, arrival: float = 0.0, priority: int = 0, **sampling) -> Request:
    """A request with a prompt of its own of `length` tokens."""
    prompt = [(id * 131 + place * 7) % 1000 for place in range(length)]
    return Request(id, prompt, SamplingParams(max_tokens=max_tokens, **sampling), arrival, priority=priority)


class Stepper:
    """One engine, a virtual time `now`; `step` carries out one step and checks every invariant around it."""

    def __init__(self, engine: Engine, requests: Iterable[Request] = ()):
        self.engine, self.now, self.max_preempted = engine, 0.0, 0
        for each in requests:
            engine.submit(each)

    def step(self) -> StepTrace | None:
        engine = self.engine
        running = list(engine.scheduler.running)
        flight = engine.begin(self.now)
        if flight is None:
            return None
        check_plan(engine, flight, running)
        before = {row.request.id: (row.request.num_computed, row.request.num_output) for row in flight.plan.rows}
        self.now += engine.execute(flight).seconds
        step = engine.commit(flight, self.now)
        check_landed(engine, flight, before)
        return step

    def run(self, limit: int = 20_000) -> list[StepTrace]:
        """Steps until the engine is idle; fails where it is not idle and plans nothing."""
        steps = []
        for _ in range(limit):
            step = self.step()
            if step is not None:
                steps.append(step)
            elif self.engine.idle:
                return steps
            else:
                raise AssertionError(f"stuck with {len(self.engine.scheduler.waiting)} waiting")
        raise AssertionError(f"not idle after {limit} steps")


def run_all(requests: list[Request], **options) -> Engine:
    """All of `requests` from time 0, to the end, with every check."""
    engine = make_engine(**options)
    Stepper(engine, requests).run()
    return engine


def preemptions(engine: Engine) -> int:
    """How often a request was preempted in this run so far."""
    return sum(event.kind == "preempted" for event in engine.trace.events())


def assert_solo(requests: Iterable[Request], eos: Iterable[int] = ()) -> None:
    """Every request got exactly the tokens it gets alone."""
    for each in requests:
        assert each.output == solo(list(each.prompt), each.sampling, frozenset(eos)), f"request {each.id}"


def check_plan(engine: Engine, flight: Flight, running_before: list[Request]) -> None:
    """Rules of a plan, between begin and commit. `running_before` ran when begin was called."""
    scheduler, memory, plan = engine.scheduler, engine.memory, flight.plan
    ids = [row.request.id for row in plan.rows]
    assert len(ids) == len(set(ids)), "a request has two rows"
    real = [row for row in plan.rows if row.num_tokens]
    assert real, "a plan without work"
    for row in real:
        owner = row.request
        assert owner.status == "running" and owner.in_flight
        assert row.start == owner.num_computed and row.num_tokens > 0
        assert row.samples == (row.start + row.num_tokens == owner.num_tokens)
        assert len(owner.block_table) == memory.blocks_for(row.start + row.num_tokens)
    for row in plan.rows:
        if not row.num_tokens:
            assert row.request.status == "finished" and scheduler.axes.batching.carries_finished
            assert not row.samples and row.padding > 0
    width = max(row.num_tokens for row in real)
    if plan.attention == "padded":
        assert all(row.num_tokens + row.padding == width for row in plan.rows)
    else:
        assert all(row.padding == (row.num_tokens == 0) for row in plan.rows)
    if isinstance(scheduler.axes.chunking, TokenBudget):
        assert plan.num_tokens <= scheduler.axes.chunking.max_tokens
    check_admission(engine, flight, running_before)
    held = [block for owner in scheduler.running for block in owner.block_table]
    assert len(held) == len(set(held)), "two live tables hold one block"


def check_admission(engine: Engine, flight: Flight, running_before: list[Request]) -> None:
    """The oldest is never a victim; whoever is admitted fits beside what the others are still owed."""
    memory, running = engine.memory, engine.scheduler.running
    preempted = {event.request for event in flight.events if event.kind == "preempted"}
    admitted = {event.request for event in flight.events if event.kind == "admitted"}
    survivors = [each for each in running_before if each.status != "finished"]
    assert not preempted & admitted, "taken back in the step that preempted it"
    if preempted:
        assert min(survivors, key=lambda each: each.order).id not in preempted
    if admitted:
        owed = sum(max(0, memory.blocks_for(each.num_tokens) - len(each.block_table)) for each in running)
        assert owed <= memory.counts().free


def check_landed(engine: Engine, flight: Flight, before: dict[int, tuple[int, int]]) -> None:
    """Rules after commit: progress is exactly what was planned, tables are exactly as long as needed."""
    for row in flight.plan.rows:
        computed, outputs = before[row.request.id]
        assert row.request.num_computed == computed + row.num_tokens
        if row.request.finish_reason != "abort":
            assert row.request.num_output == outputs + row.samples
        assert not row.request.in_flight
    for each in engine.requests.values():
        if each.status == "running":
            assert len(each.block_table) == engine.memory.blocks_for(each.num_computed)
        else:
            assert not each.block_table
        assert each.status != "preempted" or each.num_computed == 0
        assert len(each.output) <= each.sampling.max_tokens
    assert sum(engine.memory.counts()) == engine.memory.num_blocks
    engine.check()
