"""LLM Batching Lab: one engine, one workload, interchangeable batching policies, two clocks.

Importing `lab` needs nothing but the standard library; every public name is resolved on first use.
"""

from __future__ import annotations

import os as _os
from importlib import import_module as _import_module

__version__ = "0.1.0"

# torch's OpenMP threads spin at barriers; beside a browser or a plotting thread that makes small matrix
# products 10-20 times slower. Passive waiting must be chosen before torch is imported. (The large products do not
# pass through OpenMP where lab.execution.cores runs them; everything else still does.)
_os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Every step reads all weights: in 2 MiB pages of memory (Linux) that takes far fewer look-ups of addresses. torch asks
# for such pages if told before its first allocation.
_os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

_NAMES = {
    "load_model": "lab.execution.model",
    "decode_curve": "lab.execution.curve",
    "storage_difference": "lab.execution.storage",
    "chat_workload": "lab.workload",
    "Workload": "lab.workload",
    "fixed_workload": "lab.workload",
    "multi_turn_workload": "lab.shared_prefixes",
    "few_shot_workload": "lab.shared_prefixes",
    "tree_workload": "lab.shared_prefixes",
    "system_prompt_workload": "lab.shared_prefixes",
    "LongestPrefix": "lab.ordering.prefix",
    "Hrrn": "lab.ordering.prefix",
    "KLpm": "lab.ordering.prefix",
    "run": "lab.running",
    "compare": "lab.running",
    "build_engine": "lab.running",
    "Priced": "lab.simulation.priced",
    "simulated": "lab.simulation.model",
    "calibrate": "lab.simulation.calibrate",
    "capacity": "lab.simulation.capacity",
    "sweep": "lab.simulation.sweep",
    "Static": "lab.batching.static",
    "Dynamic": "lab.batching.dynamic",
    "Continuous": "lab.batching.continuous",
    "Fixed": "lab.batching.control",
    "Greedy": "lab.batching.control",
    "Threshold": "lab.batching.control",
    "Pid": "lab.batching.control",
    "Aimd": "lab.batching.control",
    "MarginalCost": "lab.batching.control",
    "DelayFactor": "lab.batching.control",
    "HillClimb": "lab.batching.control",
    "SlaBinarySearch": "lab.batching.control",
    "WholePrompt": "lab.chunking",
    "TokenBudget": "lab.chunking",
    "SlackBudget": "lab.chunking",
    "Fcfs": "lab.ordering.arrival",
    "ShortestPrompt": "lab.ordering.length",
    "ShortestRemaining": "lab.ordering.length",
    "EarliestDeadline": "lab.ordering.deadline",
    "Hybrid": "lab.ordering.deadline",
    "Aged": "lab.ordering.aged",
    "Recompute": "lab.preemption",
    "Swap": "lab.preemption",
    "Request": "lab.request",
    "SamplingParams": "lab.request",
    "Engine": "lab.engine",
    "Report": "lab.metrics",
    "RunTrace": "lab.trace",
    "chrome_trace": "lab.export",
    "StepTrace": "lab.trace",
    "check": "lab.course.checks",
    "predict": "lab.course.predictions",
    "reveal": "lab.course.predictions",
    "NeverFits": "lab.errors",
    "OutOfBlocks": "lab.errors",
}
_MODULES = ("live", "course", "errors", "traces")

__all__ = sorted([*_NAMES, *_MODULES])


def __getattr__(name: str):
    if name in _NAMES:
        try:
            value = getattr(_import_module(_NAMES[name]), name)
        except ModuleNotFoundError as error:
            hint = "run `python3 -m lab --setup-only` once, then use the interpreter in .venv"
            raise ImportError(
                f"lab.{name} needs the package {error.name!r}, which this Python lacks: {hint}"
            ) from error
    elif name in _MODULES:
        value = _import_module(f"lab.{name}")
    else:
        raise AttributeError(f"module 'lab' has no attribute {name!r}; public names: {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
