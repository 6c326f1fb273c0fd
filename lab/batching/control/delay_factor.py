"""vLLM V0's `--scheduler-delay-factor`: prompts wait in proportion to how long the last prompts took."""

from __future__ import annotations

from lab.batching.control.protocol import AT_ONCE, Limits
from lab.batching.protocol import QueueView
from lab.batching.served import Served
from lab.numbers import real


class DelayFactor:
    """Admit prompts only when the oldest has waited long enough, or when nobody runs.

        admit  ⟺  now - oldest arrival ≥ factor × seconds of the last step with prompts, or nothing runs

    vLLM pull request #3279 (March 2024; default 0, gone in V1): where a prompt step stalls all decodes, it is better
    to have few such steps with many prompts each; more than 2× better inter-token latency under stress, at some
    cost in TTFT. Feed-forward and proportional, without a target. It belongs with `whole` chunking; where decodes
    are not stalled by prompts (token budget) there is nothing to gain.
    """

    name = "delay-factor"
    only_continuous = True

    def __init__(self, factor: float = 0.5):
        self.factor = real(factor, "a delay factor of")
        self.reset()

    def reset(self) -> None:
        """No prompts have been seen: nobody waits."""
        self.prompt_seconds = 0.0

    def limits(self, queue: QueueView, now: float) -> Limits:
        """An idle engine never waits."""
        if not queue.running:
            return Limits(None, AT_ONCE)
        return Limits(None, queue.oldest_arrival + self.factor * self.prompt_seconds)

    def observe(self, served: Served) -> None:
        """Remember how long the last step with prompts took."""
        if served.prompts:
            self.prompt_seconds = served.seconds
