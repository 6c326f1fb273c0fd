"""What all trace formats share: numbered lines, errors that name them, and the part of a trace that is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab import numbers
from lab.errors import BadWorkload

NS = 1_000_000_000
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class Record(NamedTuple):
    """One request of a trace. `time` counts nanoseconds from any zero; whole numbers keep seven-digit fractions."""

    time: int
    prompt: int
    output: int
    keys: tuple[int, ...] = ()


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends (LF or CRLF, the last may lack one); blank ones are passed over."""
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as error:
                    raise at_line(path, number, "not text in UTF-8") from error
                if text:
                    yield number, text
    except OSError as error:
        raise BadWorkload(
            f"{path} cannot be read ({error.strerror}): `python3 -m lab fetch-data` gets the public traces"
        ) from error


def at_line(path: Path, number: int, problem: object) -> BadWorkload:
    """The error for one line of a file."""
    return BadWorkload(f"{path}, line {number}: {problem}")


def records(path: Path, parse: Callable[[str], Record], header: str | None = None) -> Iterator[Record]:
    """Parse line after line. Raises BadWorkload for a wrong header, a line `parse` rejects, and time going back."""
    numbered = lines(path)
    if header is not None:
        number, found = next(numbered, (1, ""))
        if not found:
            raise BadWorkload(f"{path} is empty, expected the header {header!r}")
        if found.split(",")[: header.count(",") + 1] != header.split(","):
            raise at_line(path, number, f"the header is {found[:80]!r}, expected {header!r}")
    before: Record | None = None
    for number, text in numbered:
        try:
            record = parse(text)
        except ValueError as error:
            raise at_line(path, number, error) from error
        if before is not None and record.time < before.time:
            early = (before.time - record.time) / NS
            raise at_line(path, number, f"out of order: it arrives {early:g} s before the line above it")
        yield record
        before = record


def whole(name: str, value: object, least: int) -> int:
    """A whole number of at least `least`, given as one or as text; ValueError says what is wrong with it."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
    return value


@dataclass(frozen=True, slots=True)
class Window:
    """Which requests of a trace are wanted, and how fast it is told.

    Those that arrive in [start, start + duration) seconds after the trace's first one, prompts longer than
    `max_prompt` left out, at most `limit` of them. Time starts at `start` and is multiplied by `scale`.
    """

    limit: int | None = None
    start: float = 0.0
    duration: float | None = None
    scale: float = 1.0
    max_prompt: int | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "max_prompt"):
            if getattr(self, name) is not None:
                numbers.whole(getattr(self, name), f"{name} is", 1, BadWorkload)
        numbers.real(self.start, "start is", error=BadWorkload)
        for name in ("duration", "scale"):
            if getattr(self, name) is not None and numbers.real(getattr(self, name), f"{name} is", 0, BadWorkload) == 0:
                raise BadWorkload(f"{name} is 0; it must be above 0")

    def select(self, found: Iterable[Record]) -> Iterator[tuple[float, Record]]:
        """Wanted records with their arrival in seconds; reads no further than it must."""
        first: int | None = None
        count = 0
        for record in found:
            first = record.time if first is None else first
            seconds = (record.time - first) / NS - self.start
            if self.duration is not None and seconds >= self.duration:
                return
            if seconds >= 0 and (self.max_prompt is None or record.prompt <= self.max_prompt):
                yield seconds * self.scale, record
                count += 1
                if count == self.limit:
                    return
