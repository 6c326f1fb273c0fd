"""Dynamic batching: static batching with another start rule. A batch need not be full, it waits only so long.

A batch starts when `max_batch` requests wait or when the oldest of them has waited the delay, whichever comes
first, and never while another batch runs (Triton's `max_queue_delay_microseconds`, TensorFlow Serving's
`batch_timeout_micros`). Two milliseconds is the text-book value; Triton's default is 0.

What the delay guarantees. A request waits longer than the delay only if a batch is running at the moment
arrival + delay. So the delay bounds queueing while the engine is idle when the timer fires, and says nothing
otherwise: behind a batch of one second, a delay of 2 ms is a wait of up to one second, and behind more than
`max_batch` others it is several batches. (A later arrival that an order puts first can take a slot as well.)
"""

from __future__ import annotations

from typing import Any

from lab.axes import describe
from lab.batching.control import Controller, make_control
from lab.batching.protocol import Admission, QueueView
from lab.batching.served import Watch
from lab.errors import BadPolicy
from lab.numbers import whole
from lab.trace import StepTrace


class Dynamic:
    """Start at `max_batch` requests, or when the oldest has waited `delay`.

    `delay` is seconds (0: never wait), or a controller that decides on delay and size, or the name of one;
    further arguments go to the named controller: `Dynamic(8, 0.002)`, `Dynamic(8, "pid", target=0.01)`.
    """

    name = "dynamic"
    attention = "padded"
    delivery = "batch"
    carries_finished = True
    admits_together = True

    def __init__(self, max_batch: int = 8, delay: float | str | Controller = 0.002, *settings: Any, **named: Any):
        self.max_batch = whole(max_batch, "dynamic batching with max_batch")
        self.control = make_control(delay, *settings, **named)
        if getattr(self.control, "only_continuous", False):
            raise BadPolicy(
                f"the controller {self.control.name} lets requests wait only while others run, and a dynamic batch "
                f"starts only when nobody runs, so it would never wait: use it with continuous batching"
            )
        self._watch = Watch(getattr(self.control, "observe", None), batches=True)

    @property
    def spec(self) -> str:
        """`dynamic:8:fixed:0.002`."""
        return f"{self.name}:{self.max_batch}:{describe(self.control)}"

    @property
    def steady(self) -> bool:
        """Nobody joins while a batch runs; but a controller that learns wants to see its steps."""
        return not hasattr(self.control, "observe")

    def admit(self, view: QueueView) -> Admission:
        """Nobody while a batch runs; then everybody who fits, or a time to ask again."""
        if view.running or not view.waiting:
            return Admission(0)
        size, wait_until = self.control.limits(view, view.now)
        size = self.max_batch if size is None else min(size, self.max_batch)
        if view.waiting < size and view.now < wait_until:
            return Admission(0, wake_at=wait_until)
        return Admission(size)

    def reset(self) -> None:
        """A new run: the controller forgets what it has learned."""
        self._watch.reset()
        if hasattr(self.control, "reset"):
            self.control.reset()

    def observe(self, step: StepTrace) -> None:
        """The controller learns of each batch when it has ended."""
        self._watch.observe(step)
