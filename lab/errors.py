"""Errors a learner can cause. Each message names the number that is wrong and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LabError(Exception):
    """Base of every error this package raises on purpose."""


class BadRequest(LabError, ValueError):
    """A request or sampling parameter is outside its allowed range."""


class BadWorkload(LabError, ValueError):
    """A workload or trace file cannot be read; the message names the line or field."""


class BadPolicy(LabError, ValueError):
    """An axis value is unknown, out of range, or does not fit the other axes."""


class NeverFits(LabError):
    """A request needs more than the engine can ever give it; refused at admission."""

    def __init__(self, request_id: int, needs: int, has: int, unit: str = "blocks"):
        self.request_id, self.needs, self.has, self.unit = request_id, needs, has, unit
        super().__init__(
            f"request {request_id} needs {needs} {unit}, the most this engine can give is {has}: "
            f"shorten the prompt or max_tokens, or enlarge the pool"
        )


class OutOfBlocks(LabError):
    """The block pool cannot serve an allocation now; the scheduler answers by preempting."""

    def __init__(self, needs: int, free: int):
        self.needs, self.free = needs, free
        super().__init__(f"needs {needs} more blocks, {free} are free")


class BlockError(LabError):
    """A block was freed twice, or its books do not balance: a bug, reported with the block id."""


class ModelError(LabError):
    """A checkpoint cannot be loaded; the message names the file or tensor and the shapes."""


class EngineStopped(LabError):
    """The engine (or the session that drives it) no longer takes requests."""


class UnknownName(BadPolicy):
    """A device or model that no table holds; the message suggests those whose names are nearest."""

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = get_close_matches(str(name).lower(), self.known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(self.known)}"
        super().__init__(f"{kind} {name!r} is not known; {hint}")


class DoesNotFit(BadPolicy):
    """A model's weights exceed the memory that a simulated device leaves for them."""
