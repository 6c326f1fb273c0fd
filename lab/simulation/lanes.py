"""Steps in flight together on one device: a fluid model of shared arithmetic and shared memory bandwidth.

A step that takes s seconds alone keeps the device's arithmetic busy for a share `compute` of them and its memory for a
share `memory`. Steps in flight together run as fast as alone while each sum of shares is at most 1; beyond, all slow
down by the larger sum. So two decodes gain only where their overheads overlap; a prefill beside a decode gains most.

A lane may be confined to a `fraction` of the arithmetic (SM masks, green contexts, MIG without its split of memory):
what wants more arithmetic takes longer, and leaves the rest to others. Bandwidth stays shared.

Left out, all of it to the disadvantage of sharing: kernels of one stream that fill every SM and make the other wait
for a whole wave (streams do not partition SMs), the bandwidth that few SMs cannot saturate, conflicts in caches and
DRAM, clocks that drop under load, and that the use of resources is uneven over a step. Fused kernels such as
POD-Attention (arXiv:2410.18038) come nearest to what is modelled; MuxWise (arXiv:2504.14489) and Bullet
(arXiv:2504.19516) measure what partitions reach.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from lab.errors import BadPolicy
from lab.numbers import real


class Demand(NamedTuple):
    """Seconds a step takes alone, and the shares of these in which arithmetic and memory are busy (0 to 1)."""

    seconds: float
    compute: float
    memory: float

    def within(self, fraction: float) -> Demand:
        """The same work where only `fraction` of the arithmetic may be used."""
        longer = max(1.0, self.compute / fraction)
        return Demand(self.seconds * longer, self.compute / longer, self.memory / longer)


@dataclass(slots=True)
class _Flight:
    left: float  # seconds it would still take alone
    demand: Demand


class SharedDevice:
    """Who is in flight, how far each has come, and who ends next. Times never go back: BadPolicy where they would."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def slowdown(self) -> float:
        """How many times longer than alone everything in flight takes now; at least 1."""
        demands = [flight.demand for flight in self._flights.values()]
        return max(1.0, sum(demand.compute for demand in demands), sum(demand.memory for demand in demands))

    def start(self, key: Hashable, work: Demand, now: float, fraction: float = 1.0) -> None:
        """Put a step in flight at `now`, confined to `fraction` of the arithmetic."""
        self._advance(now)
        if key in self._flights:
            raise BadPolicy(f"{key!r} is in flight already; finish it before it starts again")
        if not 0 < real(fraction, "a fraction of the arithmetic of") <= 1:
            raise BadPolicy(f"a fraction of the arithmetic of {fraction}; it must be above 0 and at most 1")
        for name, value in work._asdict().items():
            if real(value, f"{key!r} has a demand whose {name} is") > 1 and name != "seconds":
                raise BadPolicy(f"{key!r} has a demand whose {name} is {value}; it must be at most 1")
        demand = work.within(fraction)
        self._flights[key] = _Flight(demand.seconds, demand)

    def next_end(self) -> float | None:
        """When the next step in flight ends if none starts before; None where nothing is in flight."""
        if not self._flights:
            return None
        return self._now + self.slowdown * min(flight.left for flight in self._flights.values())

    def finish(self, now: float) -> list[Hashable]:
        """Take out and return, in the order they started, all steps that have ended by `now`.

        `now` is at most `next_end()`: a step that ends changes how fast the others go on.
        """
        end = self.next_end()
        if end is not None and now > end + _rounding(end):
            raise BadPolicy(f"finish at {now} s, and a step ended at {end} s already: finish that one first")
        self._advance(now)
        ended = [key for key, flight in self._flights.items() if flight.left <= _rounding(now)]
        for key in ended:
            del self._flights[key]
        return ended

    def _advance(self, now: float) -> None:
        if now < self._now - _rounding(now):
            raise BadPolicy(f"a shared device at {self._now} s cannot go back to {now} s")
        passed = max(0.0, now - self._now) / self.slowdown
        for flight in self._flights.values():
            flight.left = max(0.0, flight.left - passed)
        self._now = max(self._now, now)


def _rounding(now: float) -> float:
    """Seconds below which two times are the same."""
    return 1e-12 * max(1.0, abs(now))
