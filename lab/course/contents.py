"""`contents()`: the notebooks that are there, from course.yaml, as a table with links."""

from __future__ import annotations

from dataclasses import dataclass

from lab.course.manifest import Entry, load


@dataclass(frozen=True, slots=True)
class Contents:
    """Shows itself as a Markdown table, or as text."""

    entries: tuple[Entry, ...]

    def _repr_markdown_(self) -> str:
        rows = [
            f"| [{entry.name[:2]} {entry.title}]({entry.name}.ipynb) | {entry.objective} | {entry.minutes} min |"
            for entry in self.entries
        ]
        return "\n".join(["| notebook | afterwards you can … | time |", "|:--|:--|--:|", *rows])

    def __repr__(self) -> str:
        return "\n".join(f"{e.name[:2]} {e.title} ({e.minutes} min): {e.objective}" for e in self.entries)


def contents() -> Contents:
    """Every notebook of the course in reading order. Raises BadManifest where course.yaml cannot be read."""
    return Contents(tuple(load()))
