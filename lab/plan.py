"""What one step does (StepPlan) and what came of it (StepResult): the only things scheduler and runner share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab.request import Request

#: Two float32 logits closer than this may be ordered differently by kernels that round differently: measured largest
#: difference between this package's attention backends and batch shapes on the default model, times ten.
LOGIT_TOLERANCE = 2e-3


@dataclass(slots=True)
class Row:
    """One request's share of a step: compute positions [start, start + num_tokens), then perhaps sample.

    `padding` positions are computed after them, attend only within their own row, write keys and values to the
    runner's scratch block and are never sampled. A row with num_tokens == 0 is a finished request that a static
    batch still carries.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool  # True when this row computes the request's last known token, so the next one can be sampled
    padding: int = 0


@dataclass(slots=True, frozen=True)
class BlockCopy:
    """Move one block's keys and values before the step: "copy" (on write), "out" (to host) or "in" (back)."""

    kind: str
    source: int
    target: int


@dataclass(slots=True)
class StepPlan:
    """The rows of one step. `attention` is "packed" (ragged, no padding) or "padded" (a real rectangle).

    `repeat` > 1 lets a pricing runner advance up to that many identical decode steps in one go (a stretch), the last
    of them being the first that ends `until` seconds or more after the start.
    """

    rows: list[Row]
    attention: str = "packed"
    copies: list[BlockCopy] = field(default_factory=list)
    repeat: int = 1
    until: float | None = None

    @property
    def num_tokens(self) -> int:
        """Real tokens this step computes."""
        return sum(row.num_tokens for row in self.rows)

    @property
    def num_padding(self) -> int:
        """Padding tokens that go through every layer and are thrown away."""
        return sum(row.padding for row in self.rows)


@dataclass(slots=True)
class StepResult:
    """One entry per row, None where the row does not sample (or where tokens are only priced).

    `margins` are the differences of the two largest logits, by which `compare` tells a tie from an error.
    `seconds` is measured by a real runner and modelled by a pricing one. `flops` and `bytes` are the operations and
    the memory traffic of the plan (0: unknown). For a stretch they are sums, and `ends` are the seconds after which
    each of the steps carried out was over; a single step has none.
    """

    tokens: list[int | None]
    margins: list[float | None]
    seconds: float
    modelled: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    ends: Sequence[float] | None = None


class Runner(Protocol):
    """Carries out plans. It never touches a clock, a policy or the books of the block pool."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute `plan` and report its seconds. Sampled tokens come back in row order."""
        ...
