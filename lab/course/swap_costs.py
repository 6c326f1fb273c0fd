"""What a preempted token costs on this computer: computed again, or copied to the host and back."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds per token, both measured; `copied_bytes` is how much one token moves, out and in."""

    context: int
    recompute_ms: float
    swap_ms: float
    copied_bytes: int

    @property
    def ratio(self) -> float:
        """How many times dearer computing again is."""
        return self.recompute_ms / self.swap_ms


def swap_costs(model: Any, context: int, block_size: int = 16, repeats: int = 3) -> Costs:
    """Medians over `repeats`, after one run that warms up."""
    blocks = -(-context // block_size)
    runner = model.runner(blocks, block_size, num_host_blocks=blocks)
    tokens = [(7 * place) % 1000 + 5 for place in range(context)]
    request = Request(0, tokens, block_table=list(range(blocks)))
    prefill = StepPlan([Row(request, 0, context, samples=False)])
    both = [BlockCopy(kind, place, place) for kind in ("out", "in") for place in range(blocks)]
    compute = [_seconds(lambda: runner.run(prefill)) for _ in range(repeats + 1)][1:]
    copy = [_seconds(lambda: runner.cache.apply(both)) for _ in range(repeats + 1)][1:]
    per_token = [1000 * median(times) / context for times in (compute, copy)]
    return Costs(context, *per_token, 2 * model.kv_bytes_per_token)


def counted_bytes_per_token(model: Any, block_size: int = 16) -> int:
    """Bytes by which the real pool grows when it gets one more block, per token of that block."""
    sizes = []
    for blocks in (3, 4):
        cache = model.runner(blocks, block_size).cache
        sizes.append(cache.keys.nbytes + cache.values.nbytes)
    return (sizes[1] - sizes[0]) // block_size


def _seconds(work: Any) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started
