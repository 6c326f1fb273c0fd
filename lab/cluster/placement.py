"""Prompts on several devices: who computes what, and when is the last one done?

    python3 -m lab placement --prompts 6000,2000,6000,2000,2000,2000 --devices 2 --kernel varlen

The critical path is the work of the busiest device: with equal devices that start together, the time until all
prompts are done, in units of work. Balancing shortens it; with a variable-length kernel the total never changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.cluster.partition import MOST_TO_ENUMERATE, STRATEGIES
from lab.cluster.prefill import KERNELS, MODELS, PrefillCost, model_named
from lab.errors import BadPolicy, BadWorkload, LabError


@dataclass(frozen=True, slots=True)
class Placement:
    """One split of the prompts. `indices` and `assignment` hold a list per device: prompt numbers and lengths."""

    strategy: str
    indices: list[list[int]]
    assignment: list[list[int]]
    costs: list[int]  # work of each device, in the unit of the cost

    @property
    def critical_path(self) -> int:
        """Work of the busiest device."""
        return max(self.costs)

    @property
    def total(self) -> int:
        """Work of all devices."""
        return sum(self.costs)

    @property
    def busiest(self) -> list[int]:
        """Prompt lengths on the busiest device."""
        return self.assignment[self.costs.index(self.critical_path)]


MOST_DEVICES = 10_000


def place(prompts: Sequence[int], devices: int, strategy: str = "lpt", cost: PrefillCost | None = None) -> Placement:
    """Split `prompts` (lengths in tokens) over `devices`. Raises BadWorkload or BadPolicy for what makes no sense."""
    cost = PrefillCost() if cost is None else cost
    wrong = [tokens for tokens in prompts if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1]
    if wrong or not prompts:
        raise BadWorkload(f"prompt lengths {wrong or 'of no prompt'}; placement needs whole numbers of at least 1")
    if not isinstance(devices, int) or devices < 1:
        raise BadPolicy(f"placement on {devices} devices; it must be a whole number of at least 1")
    if devices > MOST_DEVICES:
        raise BadPolicy(f"placement on {devices:,} devices; it can be at most {MOST_DEVICES:,}")
    if strategy not in STRATEGIES:
        raise BadPolicy(f"strategy {strategy!r} is not known; there are {', '.join(STRATEGIES)}")
    groups = STRATEGIES[strategy](prompts, devices, cost)
    indices = sorted((sorted(group) for group in groups), key=lambda group: (not group, group))
    assignment = [[prompts[index] for index in group] for group in indices]
    return Placement(strategy, indices, assignment, [cost(lengths) for lengths in assignment])


def place_all(
    prompts: Sequence[int], devices: int, cost: PrefillCost, strategies: Sequence[str] = ()
) -> dict[str, Placement]:
    """Every strategy (or those named) by name; without names, optimal only where it can be enumerated."""
    names = strategies or [name for name in STRATEGIES if name != "optimal" or len(prompts) <= MOST_TO_ENUMERATE]
    return {name: place(prompts, devices, name, cost) for name in names}


def change(value: int, reference: int) -> float:
    """Relative change: -0.421 is 42.1 % less."""
    return value / reference - 1


def prefill_table(prompts: Sequence[int], devices: int, kernel: str = "varlen") -> dict[str, dict[str, float]]:
    """What balancing the whole prefill gains for each model of the table.

    `attention_share` of the busiest device under FIFO, `change` of the critical path from FIFO to LPT, `crossover`
    the prompt length at which attention costs as much as the linear layers.
    """
    table = {}
    for name, shape in MODELS.items():
        cost = PrefillCost(kernel, shape)
        first, balanced = place(prompts, devices, "fifo", cost), place(prompts, devices, "lpt", cost)
        table[name] = {
            "attention_share": cost.attention_share(first.busiest),
            "change": change(balanced.critical_path, first.critical_path),
            "crossover": shape.crossover,
        }
    return table


def record(prompts: Sequence[int], devices: int, cost: PrefillCost, placements: dict[str, Placement]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    reference = place(prompts, devices, "fifo", cost)
    return {
        "prompts": list(prompts),
        "devices": devices,
        "kernel": cost.kernel,
        "model": None if cost.model is None else cost.model.name,
        "unit": cost.unit,
        "strategies": {
            name: {
                "assignment": placed.assignment,
                "indices": placed.indices,
                "costs": placed.costs,
                "critical_path": placed.critical_path,
                "total": placed.total,
                "critical_path_change": change(placed.critical_path, reference.critical_path),
                "total_change": change(placed.total, reference.total),
            }
            for name, placed in placements.items()
        },
    }


def main(argv: Sequence[str]) -> int:
    """`python3 -m lab placement`: a table on the terminal, JSON with --json; 2 for input that makes no sense."""
    options = _options(argv)
    try:
        prompts = _lengths(options.prompts)
        every_model = options.model == "all"
        model = model_named(options.model) if options.model and not every_model else None
        cost = PrefillCost(options.kernel, model)
        result = record(prompts, options.devices, cost, place_all(prompts, options.devices, cost, options.strategy))
        if every_model:
            result["models"] = prefill_table(prompts, options.devices, options.kernel)
        if options.json:
            Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    except (LabError, OSError) as error:
        print(f"placement: {error}", file=sys.stderr)
        return 2
    print(summary(result))
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python3 -m lab placement", description="Split prompts over devices."
    )
    parser.add_argument("--prompts", default="6000,2000,6000,2000,2000,2000", help="prompt lengths, comma-separated")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--kernel", default="varlen", help=" or ".join(KERNELS))
    parser.add_argument("--strategy", action="append", default=[], help=f"repeat; {', '.join(STRATEGIES)}")
    parser.add_argument("--model", help=f"count all of prefill: {', '.join(MODELS)}; all: one line for each of them")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    return parser.parse_args(list(argv))


def _lengths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadWorkload(f"prompt lengths {text!r}; they must be whole numbers separated by commas") from None


def summary(result: dict[str, Any]) -> str:
    """The record as a table for people."""
    lines = [f"{result['kernel']} kernel, {result['devices']} devices; work in {result['unit']}, changes against fifo"]
    for name, placed in result["strategies"].items():
        split = " | ".join(",".join(map(str, lengths)) for lengths in placed["assignment"])
        lines.append(
            f"{name:15} critical path {placed['critical_path']:>15,} ({placed['critical_path_change']:+.2%})  "
            f"total {placed['total']:>15,} ({placed['total_change']:+.2%})  [{split}]"
        )
    for name, row in result.get("models", {}).items():
        lines.append(
            f"{name:15} attention is {row['attention_share']:.1%} of the prefill of fifo's busiest device; "
            f"lpt {row['change']:+.1%}; attention = linear at {row['crossover']:,} tokens"
        )
    return "\n".join(lines)
