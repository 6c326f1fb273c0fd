"""A stretch of decode steps taken at once is the same run: every counter equal, every time within 1e-9."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

import pytest

from lab.clock import Driver, VirtualClock
from lab.errors import LabError
from lab.plan import StepPlan, StepResult
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.simulation.priced import Priced
from lab.trace import RunTrace


@dataclass
class ContextRunner:
    """Prices a step by tokens and contexts, so that no two steps of a stretch cost the same."""

    stretches: bool = True

    def run(self, plan: StepPlan) -> StepResult:
        """0.01 s and something per token and per token of context."""
        ends, now = [], 0.0
        for place in range(plan.repeat):
            tokens = sum(row.num_tokens + row.padding for row in plan.rows)
            context = sum(row.start + place for row in plan.rows if row.num_tokens)
            now += 0.01 + 1e-4 * tokens + 1e-6 * context
            ends.append(now)
            if plan.until is not None and now >= plan.until:
                break
        nothing = [None] * len(plan.rows)
        operations = float(sum(row.num_tokens for row in plan.rows) * len(ends))
        return StepResult(nothing, list(nothing), now, True, operations, 0.0, ends if plan.repeat > 1 else None)


class ContextPriced(Priced):
    """The model that goes with it."""

    def runner(self, num_blocks: int, block_size: int, **options):
        """No tensors."""
        return ContextRunner()


def workload(seed: int, requests: int = 40, rate: float = 8.0, ids: bool = False) -> list[Request]:
    """Poisson arrivals, mixed lengths, some sampled twice; shared beginnings where prompts have ids."""
    draw, now, made = random.Random(seed), 0.0, []
    for index in range(requests):
        now += draw.expovariate(rate)
        sampling = SamplingParams(max_tokens=draw.choice([1, 2, 5, 40, 90]), n=draw.choice([1, 1, 1, 2]))
        length = draw.randint(1, 120)
        prompt = [draw.randint(0, 2)] * (length // 2) + [draw.randint(0, 9) for _ in range(length - length // 2)]
        made.append(Request(index, prompt if ids else None, sampling, now, num_prompt=length))
    return made


def drive(requests: list[Request], leaps: bool, **options) -> RunTrace:
    """Run to the end."""
    engine = build_engine(ContextPriced(), requests, **options)
    trace = Driver(engine, requests, VirtualClock(), leaps=leaps).run()
    engine.check()
    return trace


def steps_equal(one: RunTrace, two: RunTrace) -> None:
    """Same steps, same counters, same events; times within 1e-9 of each other."""
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        left, right = asdict(a), asdict(b)
        for name in ("start", "end"):
            assert left.pop(name) == pytest.approx(right.pop(name), rel=1e-9)
        for record in (left, right):
            record["events"] = [(kind, request, value) for _, kind, request, value, _ in record["events"]]
            del record["flops"]  # inside a stretch, the mean of its steps
            del record["bytes"]
        assert left == right
    assert [event[1:] for event in one.late_events] == [event[1:] for event in two.late_events]
    assert sum(step.flops for step in one) == pytest.approx(sum(step.flops for step in two))
    assert {k: asdict(v) for k, v in one.requests.items()} == {k: asdict(v) for k, v in two.requests.items()}


CASES = {
    "continuous": dict(batching="continuous:8"),
    "whole prompts": dict(batching="continuous:8", chunking="whole"),
    "few blocks": dict(batching="continuous:16", blocks=24),
    "swapping": dict(batching="continuous:16", blocks=24, preemption="swap"),
    "small blocks": dict(batching="continuous:8", block_size=1, blocks=300),
    "static": dict(batching="static:4"),
    "dynamic": dict(batching="dynamic:4:50ms"),
    "packed static": dict(batching="static:4", attention="packed"),
    "a controller": dict(batching="dynamic:4:pid"),
    "slack": dict(batching="continuous:8", chunking="slack"),
    "shortest first": dict(batching="continuous:4", ordering="shortest-prompt", blocks=24),
    "aged": dict(batching="continuous:16", ordering="aged:shortest-prompt:1s", blocks=24),
    "radix": dict(batching="continuous:8", prefix_cache="radix", blocks=60),
    "hash": dict(batching="continuous:8", prefix_cache="hash", blocks=40),
    "longest prefix": dict(batching="continuous:4", prefix_cache="radix", ordering="longest-prefix", blocks=40),
    "tiny budget": dict(batching="continuous:16", chunking="budget:4"),
}
# prompts that fill whole blocks and repeat: the block that a step completes may be in the cache already
REPEATED = [
    dict(prefix_cache="radix", block_size=1, blocks=100),
    dict(prefix_cache="hash", block_size=1, blocks=100),
    dict(prefix_cache="radix", block_size=16, blocks=40, chunking="budget:16"),
    dict(prefix_cache="radix", block_size=4, blocks=30, chunking="budget:5"),
]
RESERVED = dict(batching="continuous:8", memory="reserved:oracle", blocks=40)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_stretches_change_nothing(case, seed):
    options, ids = CASES[case], "prefix_cache" in CASES[case]
    try:
        single = drive(workload(seed, ids=ids), False, **options)
    except LabError as error:
        pytest.fail(f"the case itself does not run: {error}")
    leaping = drive(workload(seed, ids=ids), True, **options)
    steps_equal(single, leaping)


@pytest.mark.parametrize("options", REPEATED)
def test_stretches_with_prompts_that_repeat(options):
    def repeated():
        draw = random.Random(7)
        prompts = [[draw.choice([5, 6])] * draw.choice([1, 4, 16, 32]) for _ in range(24)]
        return [Request(i, prompt, SamplingParams(draw.randint(1, 40)), 0.1 * i) for i, prompt in enumerate(prompts)]

    steps_equal(
        drive(repeated(), False, batching="continuous:6", **options),
        drive(repeated(), True, batching="continuous:6", **options),
    )


def test_stretches_with_reserved_memory():
    def plain(seed):
        return [
            Request(r.id, None, SamplingParams(r.sampling.max_tokens), r.arrival_time, num_prompt=r.num_prompt)
            for r in workload(seed)
        ]

    steps_equal(drive(plain(5), False, **RESERVED), drive(plain(5), True, **RESERVED))


@pytest.mark.parametrize("case", ["continuous", "static", "dynamic", "few blocks", "radix", "shortest first"])
def test_the_technique_was_on(case):
    trace = drive(workload(1, ids="prefix_cache" in CASES[case]), True, **CASES[case])
    entries = list(trace.entries())
    assert sum(entry.repeat for entry in entries) == len(trace)
    assert len(entries) < 0.8 * len(trace)
    assert max(entry.repeat for entry in entries) > 10


@pytest.mark.parametrize("case", ["a controller", "slack"])
def test_a_policy_that_must_see_every_step_sees_it(case):
    trace = drive(workload(1), True, **CASES[case])
    assert all(entry.repeat == 1 for entry in trace.entries())


def test_a_stretch_ends_with_the_step_that_reaches_the_arrival():
    first = Request(0, None, SamplingParams(max_tokens=100), 0.0, num_prompt=1)
    second = Request(1, None, SamplingParams(max_tokens=1), 0.35, num_prompt=1)
    engine = build_engine(Priced(step=0.1, token=0.0), [first, second], batching="continuous:2")
    trace = Driver(engine, [first, second], VirtualClock(), leaps=True).run()
    # steps end at 0.1 (the prompt of one token), 0.2, 0.3 and 0.4: the last reaches 0.35, then both are computed
    assert [entry.repeat for entry in trace.entries()] == [4, 1, 95]
    assert [row.request for row in trace[4].rows] == [0, 1]


def test_a_trace_with_stretches_survives_the_file(tmp_path):
    trace = drive(workload(2), True, **CASES["few blocks"])
    trace.write(tmp_path / "trace.jsonl")
    again = RunTrace.read(tmp_path / "trace.jsonl")
    assert list(again.entries()) == list(trace.entries())
    assert again == trace
    assert [step for step in again] == [trace[index] for index in range(len(trace))]
