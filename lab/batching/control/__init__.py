"""Controllers: rules that set the delay or the size of dynamic batches while the engine runs, one per file.

`Dynamic(8, Pid())` lets one decide when a batch starts; `Continuous(16, DelayFactor())` when prompts are admitted.
"""

from __future__ import annotations

from typing import Any

from lab import axes
from lab.batching.control.aimd import Aimd
from lab.batching.control.delay_factor import DelayFactor
from lab.batching.control.fixed import Fixed, Greedy
from lab.batching.control.hill_climb import HillClimb
from lab.batching.control.marginal_cost import MarginalCost
from lab.batching.control.pid import Pid
from lab.batching.control.protocol import AT_ONCE, Controller, Limits
from lab.batching.control.sla_search import SlaBinarySearch
from lab.batching.control.threshold import Threshold

__all__ = [
    "AT_ONCE",
    "Aimd",
    "Controller",
    "DelayFactor",
    "Fixed",
    "Greedy",
    "HillClimb",
    "Limits",
    "MarginalCost",
    "Pid",
    "SlaBinarySearch",
    "Threshold",
    "make_control",
]


def make_control(control: Any, *settings: Any, **named: Any) -> Controller:
    """A controller from seconds, from its name (with `settings` for it), or from itself."""
    if isinstance(control, int | float) and not settings and not named:
        return Fixed(control)
    return axes.parse("control", control, *settings, **named)
