"""A price list of a GPU behind a PCIe link: what it costs to compute tokens again, and to bring them back instead.

Sizes are OPT-13B's, peaks an A100-80GB's (data sheet): 26 GB of weights at 2.039 TB/s, 312 TFLOP/s of which a
prefill reaches half, 800 KiB of keys and values per token. Assumed, not measured: half of the peak, and 10 µs for
each piece that is copied. A block is copied in one piece per layer for keys and one for values, as vLLM first did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.plan import StepPlan
from lab.simulation.priced import Priced, PricedRunner

LAYERS, HIDDEN, PARAMETERS = 40, 5120, 13e9
PIECES = 2 * LAYERS  # per block
TOKEN_BYTES = 2 * LAYERS * HIDDEN * 2
FLOPS, MEMORY = 0.5 * 312e12, 2.039e12
PIECE_SECONDS = 10e-6

#: Bytes per second in one direction of a x16 slot.
LINKS = {"PCIe 4": 32e9, "PCIe 5": 64e9}


def recompute_s(context: int) -> float:
    """Seconds of a prefill of `context` tokens: arithmetic, but at least reading the weights once."""
    attention = 2 * LAYERS * HIDDEN * context**2
    return max(2 * PARAMETERS / MEMORY, (2 * PARAMETERS * context + attention) / FLOPS)


def copy_s(blocks: int, block_size: int, link: float = LINKS["PCIe 4"]) -> float:
    """Seconds to move `blocks` blocks one way."""
    return blocks * (PIECES * PIECE_SECONDS + block_size * TOKEN_BYTES / link)


def swap_s(context: int, block_size: int, link: float = LINKS["PCIe 4"]) -> float:
    """Seconds to move a context out and back in."""
    return 2 * copy_s(-(-context // block_size), block_size, link)


def crossover(context: int, link: float = LINKS["PCIe 4"]) -> int | None:
    """The smallest block size (a power of two up to 256) with which swapping is cheaper than computing again."""
    sizes = (2**power for power in range(9))
    return next((size for size in sizes if swap_s(context, size, link) < recompute_s(context)), None)


@dataclass(slots=True)
class Accelerator(Priced):
    """`lab.Priced` with these prices: weights or arithmetic, whichever takes longer, plus every swapped block."""

    link: float = LINKS["PCIe 4"]

    def __post_init__(self) -> None:
        Priced.__post_init__(self)
        self.name = "13B on one GPU (priced)"

    def runner(self, num_blocks: int, block_size: int, **options: Any) -> PricedRunner:
        """A runner that knows the block size, and so the bytes of a copy."""

        def price(plan: StepPlan) -> float:
            compute = max(2 * PARAMETERS / MEMORY, 2 * PARAMETERS * plan.num_tokens / FLOPS)
            swapped = sum(copy.kind in ("in", "out") for copy in plan.copies)
            return compute + copy_s(swapped, block_size, self.link)

        return PricedRunner(price)
