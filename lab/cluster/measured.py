"""A split of prompts over devices, measured: real prefill through the padded and the variable-length kernel.

There is one machine, so the devices are emulated one after the other, each with all of it; the critical path is the
longest of them. What devices share in reality (memory bandwidth, a bus, power) is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.cluster.placement import place
from lab.cluster.prefill import KERNELS, PrefillCost
from lab.errors import BadPolicy
from lab.memory.blocks import blocks_for
from lab.plan import Row, StepPlan
from lab.request import Request

BLOCK_SIZE = 16
ATTENTION = {"varlen": "packed", "padded": "padded"}


@dataclass(frozen=True, slots=True)
class MeasuredSplit:
    """Seconds of one split under one kernel. `assignment` holds prompt lengths per device, as they were computed."""

    strategy: str
    kernel: str
    assignment: list[list[int]]
    seconds: list[float]  # median per device

    @property
    def critical_path(self) -> float:
        """Seconds of the busiest device."""
        return max(self.seconds)

    @property
    def total(self) -> float:
        """Seconds of all devices together."""
        return sum(self.seconds)


def measure(
    model: Any,
    prompts: Sequence[int],
    devices: int = 2,
    strategies: Sequence[str] = ("fifo", "lpt"),
    kernels: Sequence[str] = KERNELS,
    scale: int = 1,
    repeats: int = 3,
) -> dict[tuple[str, str], MeasuredSplit]:
    """Prefill `prompts` (lengths, each divided by `scale`) in every split, with every kernel: {(kernel, strategy): …}.

    Splits are made for the kernel they are measured with. Each device's prompts are one real step; all devices of all
    splits take turns, `repeats` times after one untimed turn, so that a noisy moment of the machine hits all of them.
    """
    if repeats < 1 or scale < 1:
        raise BadPolicy(f"measuring with {repeats} repeats of prompts divided by {scale}; both must be at least 1")
    lengths = [max(1, round(tokens / scale)) for tokens in prompts]
    splits = {
        (kernel, strategy): place(lengths, devices, strategy, PrefillCost(kernel)).assignment
        for kernel in kernels
        for strategy in strategies
    }
    longest = max(sum(blocks_for(tokens, BLOCK_SIZE) for tokens in device) for s in splits.values() for device in s)
    runner = model.runner(longest, BLOCK_SIZE)
    # the same prompts on a device, whatever the split is called, are measured once
    plans = {
        (kernel, tuple(device)): _plan(device, kernel) for (kernel, _), s in splits.items() for device in s if device
    }
    seconds: dict[tuple, list[float]] = {key: [] for key in plans}
    for turn in range(repeats + 1):
        for key, plan in plans.items():
            taken = runner.run(plan).seconds
            if turn:
                seconds[key].append(taken)
    return {
        (kernel, strategy): MeasuredSplit(
            strategy,
            kernel,
            split,
            [median(seconds[kernel, tuple(device)]) if device else 0.0 for device in split],
        )
        for (kernel, strategy), split in splits.items()
    }


def _plan(prompts: Sequence[int], kernel: str) -> StepPlan:
    """One step that computes all of a device's prompts, padded to the longest where the kernel is a rectangle."""
    rows, first = [], 0
    widest = max(prompts)
    for place_, tokens in enumerate(prompts):
        blocks = blocks_for(tokens, BLOCK_SIZE)
        ids = [100 + (37 * place_ + i) % 400 for i in range(tokens)]
        request = Request(place_, ids, block_table=list(range(first, first + blocks)))
        rows.append(Row(request, 0, tokens, samples=True, padding=widest - tokens if kernel == "padded" else 0))
        first += blocks
    return StepPlan(rows, ATTENTION[kernel])
