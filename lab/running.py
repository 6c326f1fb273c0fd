"""`lab.run` and `lab.compare`: a workload, a model and one policy per axis in; reports out."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from lab import axes as axis_specs
from lab.clock import Clock, Driver, make_clock
from lab.concurrent import Device, LaneDriver, SharedTime, ThreadDevice
from lab.engine import Engine
from lab.errors import BadPolicy, BadWorkload, UnknownName
from lab.lanes import make_lanes
from lab.memory.hash_cache import HashCache
from lab.memory.paged import PagedMemory
from lab.memory.protocol import Memory
from lab.memory.radix_cache import RadixCache
from lab.memory.reserved import ReservedMemory
from lab.metrics import Report, summary_table
from lab.numbers import whole
from lab.plan import LOGIT_TOLERANCE as LOGIT_TOLERANCE
from lab.prediction import make_prediction
from lab.request import Request
from lab.scheduler import Axes, Scheduler
from lab.workload import Workload

DEFAULT_BLOCKS = 1024
DEFAULT_BLOCK_SIZE = 16
MOST_BLOCKS = 1 << 24
LARGEST_POOL = 65_536  # blocks; a request that needs more wants `blocks` to be given


def build_axes(
    batching: Any = "continuous",
    chunking: Any = None,
    ordering: Any = "fcfs",
    preemption: Any = "recompute",
    attention: str | None = None,
    delivery: str | None = None,
) -> Axes:
    """Policies or their specs. Static batches compute prompts whole, others in chunks of 256, unless told."""
    policy = axis_specs.parse("batching", batching)
    if chunking is None:
        chunking = "whole" if policy.admits_together else "budget:256"
    return Axes(
        policy,
        axis_specs.parse("chunking", chunking),
        axis_specs.parse("ordering", ordering),
        axis_specs.parse("preemption", preemption),
        attention or "",
        delivery or "",
    )


def build_engine(
    model: Any,
    requests: list[Request] | None = None,
    *,
    blocks: int | None = None,
    block_size: int | None = None,
    host_blocks: int | None = None,
    memory: str = "paged",
    prefix_cache: str = "none",
    predict: Any = "fitted",
    **axes: Any,
) -> Engine:
    """An engine ready to be driven. Blocks hold 16 tokens, or as many as the model's kernels want (flash-attn: 256).

    Without `blocks` the pool holds all of `requests` at once, at most 1,024 blocks; a simulated device gives all that
    fits into its memory. Preemption by swapping has `host_blocks` blocks of host memory, as many as the pool unless
    given. Policies that need step times in advance get them from `predict`: "fitted" to the steps seen, "model" (its
    own price list), or a function of a plan.
    """
    unknown = sorted(set(axes) - set(signature(build_axes).parameters))
    if unknown:
        known = [*signature(build_axes).parameters, *list(signature(build_engine).parameters)[2:-1]]
        raise UnknownName("option", unknown[0], known)
    policies = build_axes(**axes)
    if block_size is None:
        block_size = getattr(model, "best_block_size", DEFAULT_BLOCK_SIZE)
    if blocks is None:
        if hasattr(model, "default_blocks"):
            blocks = model.default_blocks(block_size)
        else:
            blocks = _enough_blocks(requests or [], memory, prefix_cache, block_size, model.max_context)
    if host_blocks is not None and not policies.preemption.on_host:
        raise BadPolicy(f"{host_blocks} host blocks, and {policies.preemption.name} preemption uses none: choose swap")
    host_blocks = (blocks if host_blocks is None else host_blocks) if policies.preemption.on_host else 0
    if whole(blocks, "a number of blocks of") > MOST_BLOCKS:
        raise BadPolicy(f"a pool of {blocks:,} blocks; at most {MOST_BLOCKS:,} can be managed")
    runner = model.runner(blocks, block_size, num_host_blocks=host_blocks)  # knows whether its memory suffices
    store = build_memory(memory, prefix_cache, blocks, block_size, host_blocks, model.max_context)
    scheduler = Scheduler(policies, store, make_prediction(predict, model))
    engine = Engine(scheduler, store, runner, frozenset(model.eos_token_ids), model.max_context)
    engine.trace.meta = {
        "model": model.name,
        "axes": {
            **{name: axis_specs.describe(getattr(policies, name)) for name in axis_specs._HOMES},
            "attention": policies.attention,
            "delivery": policies.delivery,
            "memory": memory,
            "prefix_cache": prefix_cache,
        },
        "num_blocks": blocks,
        "block_size": block_size,
    }
    if hasattr(model, "logit_tolerance"):
        engine.trace.meta["logit_tolerance"] = model.logit_tolerance
    peaks = model.peaks() if hasattr(model, "peaks") else None
    if peaks is not None:
        engine.trace.meta |= peaks.as_meta()
    return engine


def _enough_blocks(
    requests: list[Request], memory: str, prefix_cache: str, block_size: int, max_context: int | None
) -> int:
    """A pool for all requests at once, of at most DEFAULT_BLOCKS blocks or what the largest of them needs alone.

    Requests that will be refused, or that need more than LARGEST_POOL, do not count.
    """
    store = build_memory(memory, prefix_cache, 1, block_size, 0, max_context)
    needs, together = [], 0
    for request in requests:
        alone = store.reserve(request) if isinstance(store, ReservedMemory) else store.blocks_for(request.max_total)
        if alone <= LARGEST_POOL and (max_context is None or request.max_total < max_context):
            needs.append(alone)
            together += alone * request.sampling.n
    return max([min(together, DEFAULT_BLOCKS), *needs]) if needs else DEFAULT_BLOCKS


PREFIX_CACHES = {"none": None, "hash": HashCache, "radix": RadixCache}


def build_memory(
    memory: str, prefix_cache: str, blocks: int, block_size: int, host_blocks: int = 0, max_context: int | None = None
) -> Memory:
    """The memory axis: paged (with an optional prefix cache and host blocks) or reserved:max|pow2|oracle."""
    if prefix_cache not in PREFIX_CACHES:
        raise BadPolicy(f"prefix cache {prefix_cache!r} is not known; there are {', '.join(PREFIX_CACHES)}")
    kind, _, variant = memory.partition(":")
    if kind == "paged" and not variant:
        make_cache = PREFIX_CACHES[prefix_cache]
        return PagedMemory(blocks, block_size, make_cache and make_cache(), host_blocks)
    if kind != "reserved":
        raise BadPolicy(
            f"memory {memory!r} is not known; there are paged, reserved:max, reserved:pow2, reserved:oracle"
        )
    if prefix_cache != "none" or host_blocks:
        raise BadPolicy("a prefix cache and swapping move single blocks, and reserved memory is contiguous: use paged")
    return ReservedMemory(blocks, block_size, variant or "max", min(2048, max_context or 2048))


def run(
    work: Workload,
    model: Any,
    *,
    slo: dict[str, float] | None = None,
    clock: str | None = None,
    check: bool = False,
    lanes: str = "one",
    **options: Any,
) -> Report:
    """Run every request of `work` and report. Options are those of `build_engine` and `build_axes`.

    clock "wall" waits for arrivals in real time (the default); "virtual" jumps over the waiting, and is the
    default for priced models. `check` recounts all blocks after every step. `lanes` other than "one" keep several
    steps in flight at once ("split:2", "phases", see lab.lanes): on threads or streams, or sharing a simulated
    device. A request that can never fit is refused and reported; the others go on.
    """
    work = with_rate(work, model)
    requests = work.requests(model)
    engine = build_engine(model, requests, **options)
    engine.check_every_step = check
    priced = hasattr(model, "price")
    timer = make_clock(clock or ("virtual" if priced else "wall"))
    engine.trace.meta |= {
        "clock": timer.name,
        "measured": not priced,
        "workload": work.name,
        "rate": work.rate,
    }
    driver = Driver(engine, requests, timer, leaps=True) if lanes == "one" else None
    if driver is None:
        driver = _lane_driver(engine, requests, timer, lanes, model)
    with _live_sessions_paused():
        trace = driver.run()
    return Report.from_trace(trace, slo)


def _lane_driver(engine: Engine, requests: list[Request], timer: Clock, lanes: str, model: Any) -> LaneDriver:
    """Lanes on threads when the wall clock measures a real model, on a shared simulated device otherwise."""
    made = make_lanes(lanes)
    engine.trace.meta["axes"]["lanes"] = lanes
    if timer.name == "virtual" and not hasattr(model, "price"):
        raise BadPolicy(
            f"lanes {lanes} with {model.name} on the virtual clock: how its steps share this computer shows only when "
            f"they run (clock 'wall'); a simulated model can say it (lab.simulated)"
        )
    if timer.name == "wall" and not hasattr(model, "price"):
        around = getattr(engine.runner, "lane", None)
        surroundings = (lambda lane: around(lane, len(made), made[lane].fraction)) if around else nullcontext
        device: Device = ThreadDevice(engine, timer, len(made), surroundings)
    else:
        device = SharedTime(engine, timer, made)
    return LaneDriver(engine, requests, timer, made, device)


def _live_sessions_paused() -> AbstractContextManager[None]:
    """A session that is being watched must not compete with a measurement; without one there is nothing to pause."""
    live = sys.modules.get("lab.live")
    return live.paused_sessions() if live else nullcontext()


_capacities: deque[tuple[Any, tuple, float]] = deque(maxlen=8)  # model, specs, requests/s


def with_rate(work: Workload, model: Any) -> Workload:
    """Turn `load` into a rate: load × the requests/s this model finishes when all of them wait from the start."""
    if work.load is None:
        return work
    crowd = Workload(work.name, work.specs[:24], rate=1e9)
    for known, specs, capacity in _capacities:
        if known is model and specs == crowd.specs:
            return work.at_rate(work.load * capacity)
    capacity = run(crowd, model, batching="continuous:16").requests_per_s
    if not capacity:
        raise BadWorkload(f"a load of {work.load} × capacity: none of these requests can be served")
    _capacities.append((model, crowd.specs, capacity))
    return work.at_rate(work.load * capacity)


@dataclass(frozen=True, slots=True)
class SameTokens:
    """Verdict on one run against the reference: "yes", "tie" (a near-equal pair of logits) or "no"."""

    verdict: str
    request: int | None = None
    position: int | None = None  # index into the output tokens
    margin: float | None = None  # the reference's top-2 logit margin there

    def __str__(self) -> str:
        if self.verdict == "yes":
            return "yes"
        margin = "unknown" if self.margin is None else f"{self.margin:.1e}"
        return f"{self.verdict} (request {self.request}, token {self.position}, margin {margin})"


def same_tokens(reference: Report, other: Report) -> SameTokens:
    """Compare outputs request by request up to the first difference of each; the worst verdict is returned."""
    tolerance = reference.trace.meta.get("logit_tolerance", LOGIT_TOLERANCE)
    worst = SameTokens("yes")
    for request, times in reference.times.items():
        ours, theirs = times.output, other.times[request].output
        place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if place is None and len(ours) != len(theirs):
            place = min(len(ours), len(theirs))
        if place is None:
            continue
        margin = times.margins[place] if place < len(times.margins) else None
        verdict = "tie" if margin is not None and margin < tolerance else "no"
        if worst.verdict == "yes" or verdict == "no":
            worst = SameTokens(verdict, request, place, margin)
        if verdict == "no":
            return worst
    return worst


@dataclass(slots=True)
class Comparison:
    """Reports by name, and for each whether its tokens equal those of the first."""

    reports: dict[str, Report]
    same: dict[str, SameTokens] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Report:
        return self.reports[name]

    def summary(self) -> str:
        """One table over all runs."""
        return summary_table(self.reports, {"same tokens": {name: str(same) for name, same in self.same.items()}})

    def to_dict(self) -> dict[str, Any]:
        """{"runs": [{name, axes, same_tokens, report}]}, ready for JSON."""
        return {
            "runs": [
                {
                    "name": name,
                    "axes": report.axes,
                    "same_tokens": self.same[name].verdict,
                    "same_tokens_detail": str(self.same[name]),
                    "report": report.to_dict(),
                }
                for name, report in self.reports.items()
            ]
        }


def compare(work: Workload, model: Any, runs: dict[str, dict[str, Any]], **common: Any) -> Comparison:
    """Run the same requests under several option sets, one after the other, and compare their tokens.

    The first run is the reference. On a measured clock a short run before it warms caches and kernels.
    """
    if not runs:
        raise BadPolicy("compare needs at least one run")
    work = with_rate(work, model)
    if not hasattr(model, "price"):
        warm = Workload("warm-up", work.specs[:2], rate=1e9)
        for options in runs.values():
            run(warm, model, **(common | options))
    reports = {name: run(work, model, **(common | options)) for name, options in runs.items()}
    reference = next(iter(reports.values()))
    return Comparison(reports, {name: same_tokens(reference, report) for name, report in reports.items()})
