"""Lanes: the running requests split into groups whose steps are in flight at the same time (several streams).

    split:2   every request belongs to one of two lanes for life, dealt out as they are admitted
    phases    prompts are computed in one lane, and whoever decodes moves to the other
    phases:F  the same, the lane of decodes confined to the fraction F of the device's arithmetic, the other to the rest

Only batching without rectangles can be split: a static batch is one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lab.errors import BadPolicy
from lab.numbers import whole
from lab.request import Request

MOST_LANES = 64


class Lane(Protocol):
    """Which requests a flight may take, and how much of the device's arithmetic it may use (1.0: all)."""

    name: str
    fraction: float

    def takes(self, request: Request) -> bool:
        """True when this running request's next tokens are computed in this lane."""
        ...

    def slots(self, slots: int, running: Sequence[Request]) -> int:
        """How many of the `slots` that the batching policy offers may be filled by this lane now."""
        ...

    def admitted(self, request: Request) -> None:
        """This lane has admitted `request`."""
        ...


class Share:
    """One of `number` equal lanes; the home of a request is the lane that admitted it."""

    def __init__(self, index: int, number: int, homes: dict[int, int]):
        self.name, self.index, self.number, self._homes = f"{index + 1} of {number}", index, number, homes
        self.fraction = 1.0

    def takes(self, request: Request) -> bool:
        """True for those admitted here; a further sample belongs to its parent's lane."""
        return self._homes.get(request.id & 0xFFFFFFFF) == self.index

    def slots(self, slots: int, running: Sequence[Request]) -> int:
        """An equal share of all seats, less those taken."""
        seats = -(-(len(running) + slots) // self.number)
        return max(0, min(slots, seats - sum(map(self.takes, running))))

    def admitted(self, request: Request) -> None:
        """Remember whose it is."""
        self._homes[request.id & 0xFFFFFFFF] = self.index


class Prefill:
    """All requests that still compute their prompt (or compute it again)."""

    name = "prefill"

    def __init__(self, fraction: float = 1.0):
        self.fraction = fraction

    def takes(self, request: Request) -> bool:
        """True while more than the next token is missing, or the first token is."""
        return request.remaining > 1 or request.num_output == 0

    def slots(self, slots: int, running: Sequence[Request]) -> int:
        """Everybody starts here."""
        return slots

    def admitted(self, request: Request) -> None:
        """Nothing to remember."""


class Decode:
    """All requests that compute one token at a time."""

    name = "decode"

    def __init__(self, fraction: float = 1.0):
        self.fraction = fraction

    def takes(self, request: Request) -> bool:
        """True once the first token is there and only the last one's keys and values are missing."""
        return request.remaining == 1 and request.num_output > 0

    def slots(self, slots: int, running: Sequence[Request]) -> int:
        """Nobody starts here."""
        return 0

    def admitted(self, request: Request) -> None:
        """Nobody is."""


def make_lanes(spec: str) -> list[Lane]:
    """ "one", "split:N", "phases" or "phases:F" with 0 < F < 1. Raises BadPolicy for anything else."""
    if not isinstance(spec, str):
        raise BadPolicy(f"lanes {spec!r} are not known; there are one, split:N, phases, phases:F")
    name, _, number = spec.partition(":")
    if name == "one" and not number:
        return make_lanes("split:1")
    if name == "phases":
        return _phases(spec, number)
    if number.isdecimal() and int(number) > MOST_LANES:
        raise BadPolicy(f"{number} lanes; at most {MOST_LANES} steps can be in flight at once")
    if name != "split" or not number.isdecimal():
        raise BadPolicy(f"lanes {spec!r} are not known; there are one, split:N, phases, phases:F")
    count = whole(int(number), "a number of lanes of")
    homes: dict[int, int] = {}
    return [Share(index, count, homes) for index in range(count)]


def _phases(spec: str, number: str) -> list[Lane]:
    if not number:
        return [Decode(), Prefill()]
    try:
        fraction = float(number)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction < 1:
        raise BadPolicy(f"lanes {spec!r}: the fraction of the decodes must be above 0 and below 1")
    return [Decode(fraction), Prefill(1 - fraction)]
