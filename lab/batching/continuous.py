"""Continuous batching: the batch is made anew at every token iteration.

Finished requests leave at once and waiting ones take their place in the next step (iteration-level scheduling,
Orca, OSDI'22).
"""

from __future__ import annotations

from typing import Any

from lab.axes import describe
from lab.batching.control import Controller, make_control
from lab.batching.protocol import Admission, QueueView
from lab.batching.served import Watch
from lab.numbers import whole
from lab.trace import StepTrace


class Continuous:
    """At most `max_running` requests run; every step admits as many as are missing.

    A controller (or its name and arguments, or a delay in seconds) may lower that number, and may make prompts
    wait although there is room, so that several are admitted together: `Continuous(16, "delay-factor", 0.5)`.
    """

    name = "continuous"
    attention = "packed"
    delivery = "token"
    carries_finished = False
    admits_together = False

    def __init__(
        self, max_running: int = 16, control: float | str | Controller | None = None, *settings: Any, **named: Any
    ):
        self.max_running = whole(max_running, "continuous batching with max_running")
        self.control = None if control is None else make_control(control, *settings, **named)
        self._watch = Watch(getattr(self.control, "observe", None), batches=False)

    @property
    def spec(self) -> str:
        """`continuous:16`, with the controller's spec if there is one."""
        control = "" if self.control is None else f":{describe(self.control)}"
        return f"{self.name}:{self.max_running}{control}"

    @property
    def steady(self) -> bool:
        """Without a controller the number of seats never changes."""
        return self.control is None

    def admit(self, view: QueueView) -> Admission:
        """Fill up to `max_running`, or to less, or later, where a controller says so."""
        if self.control is None or not view.waiting:
            return Admission(self.max_running - view.running)
        size, wait_until = self.control.limits(view, view.now)
        size = self.max_running if size is None else min(size, self.max_running)
        if view.now < wait_until:
            return Admission(0, wake_at=wait_until)
        return Admission(size - view.running)

    def reset(self) -> None:
        """A new run: the controller forgets what it has learned."""
        self._watch.reset()
        if hasattr(self.control, "reset"):
            self.control.reset()

    def observe(self, step: StepTrace) -> None:
        """The controller learns of each step."""
        self._watch.observe(step)
