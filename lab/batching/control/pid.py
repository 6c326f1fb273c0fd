"""A PID controller on the queueing time. Ours, as a straw man: no published LLM engine uses one."""

from __future__ import annotations

from lab.batching.control.protocol import Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.errors import BadPolicy


class Pid:
    """Steer the delay so that the oldest request of a batch has waited `target` seconds.

        e_k = target - waited_k                                        (seconds, one per batch)
        delay = kp·e_k + ki·Σe + kd·(e_k - e_{k-1}), within 0 … max_delay

    The sum leaves out errors that arrive while the delay is at one of its ends (anti-windup). While the engine is
    idle at each start, waited = delay and the loop settles at `target`: it then does what Fixed(target) does. When
    the engine is busy, requests wait longer than `target` already, the delay goes to 0, and it does what Greedy
    does. A controller cannot shorten a wait whose cause is the running batch.
    """

    name = "pid"

    def __init__(
        self, target: float = 0.005, kp: float = 0.2, ki: float = 0.4, kd: float = 0.0, max_delay: float = 0.050
    ):
        if not 0 <= target <= max_delay:
            raise BadPolicy(
                f"a target wait of {target} s with a delay of at most {max_delay} s; 0 ≤ target ≤ max_delay"
            )
        self.target, self.kp, self.ki, self.kd, self.max_delay = target, kp, ki, kd, max_delay
        self.reset()

    def reset(self) -> None:
        """Start from no delay."""
        self.delay = 0.0
        self._sum = 0.0
        self._last: float | None = None

    def limits(self, queue: QueueView, now: float) -> Limits:
        """The present delay, counted from the oldest arrival."""
        return Limits(None, queue.oldest_arrival + self.delay)

    def observe(self, served: Served) -> None:
        """One control step for each batch that admitted somebody."""
        if not served.waits:
            return
        error = self.target - served.waited
        slope = 0.0 if self._last is None else error - self._last
        self._last = error
        wanted = self.kp * error + self.ki * (self._sum + error) + self.kd * slope
        self.delay = min(self.max_delay, max(0.0, wanted))
        if wanted == self.delay:
            self._sum += error
