"""`lab.course.show(lab.Static.admit)`: the lines of the lab's own code that matter, with the file they are in."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.setup.paths import ROOT

MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of source. Markdown where it is rendered (coloured there), plain text elsewhere."""

    title: str
    code: str

    def __repr__(self) -> str:
        return f"# {self.title}\n{self.code}"

    def _repr_markdown_(self) -> str:
        return f"`{self.title}`\n\n```python\n{self.code}\n```"


def show(thing: Any, lines: tuple[int, int] | str | None = None) -> Shown:
    """Show the source of a function, method, class, module or instance: at most 40 lines.

    `lines` narrows it: (first, last), counted from 1 at the start of the thing itself, or a name or text, which
    shows the whole block (a def, a loop, an if) that begins on the first line containing it. Raises ValueError when
    nothing matches or what is left is too long.
    """
    target = inspect.unwrap(thing) if callable(thing) else thing
    if isinstance(target, property):
        target = target.fget
    if not (inspect.ismodule(target) or inspect.isclass(target) or inspect.isroutine(target)):
        target = type(target)
    text = inspect.getsource(target).rstrip().splitlines()
    if isinstance(lines, str):
        text = _block(text, lines)
    elif lines is not None:
        text = text[lines[0] - 1 : lines[1]]
    if not 0 < len(text) <= MOST_LINES:
        raise ValueError(f"{_name(target)} would show {len(text)} lines, between 1 and {MOST_LINES} fit: give `lines`")
    return Shown(f"{_file(target)} · {_name(target)}", textwrap.dedent("\n".join(text)).rstrip())


def _block(text: list[str], wanted: str) -> list[str]:
    """From the first line containing `wanted` to the last one that is indented deeper than it."""
    start = next((place for place, line in enumerate(text) if wanted in line), None)
    if start is None:
        raise ValueError(f"no line contains {wanted!r}")
    indent = len(text[start]) - len(text[start].lstrip())
    end = start + 1
    while end < len(text) and (not text[end].strip() or _deeper(text[end], indent)):
        end += 1
    return text[start:end]


def _deeper(line: str, indent: int) -> bool:
    inner = len(line) - len(line.lstrip())
    return inner > indent or (inner == indent and line.lstrip().startswith((")", "]", "}")))


def _file(target: Any) -> str:
    path = Path(inspect.getsourcefile(target) or "").resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _name(target: Any) -> str:
    return getattr(target, "__qualname__", None) or target.__name__
