"""A notebook's source, and the two notebooks made from it: the learner's copy and the solved one.

The source is a jupytext percent file. A solution stands between two markers, nbgrader's own:

    def blocks_for(num_tokens, block_size):
        ### BEGIN SOLUTION
        ### STUB: raise NotImplementedError("exercise 04.1: how many blocks hold num_tokens?")
        return -(-num_tokens // block_size)
        ### END SOLUTION

The learner gets the stub lines instead; without any, a `raise NotImplementedError` that names the exercise.
The exercise is the one that the next `lab.check("04.1", …)` names.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from lab.errors import LabError
from lab.setup.paths import ROOT

NOTEBOOKS = ROOT / "notebooks"
SOURCES = NOTEBOOKS / "instructor" / "source"
BEGIN, END, STUB = "### BEGIN SOLUTION", "### END SOLUTION", "### STUB:"
EXERCISE_TAG = "exercise"
YOUR_TURN = "# YOUR TURN: replace the next line"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_CHECK = re.compile(r"""\bcheck\(\s*["'](\d\d\.\d+)["']""")


class BadSource(LabError):
    """A notebook source cannot be turned into notebooks; the message names file and cell."""


@dataclass(frozen=True, slots=True)
class Region:
    """One solution: the lines between its markers, without the stub lines, which stand in `stub`."""

    indent: str
    solution: tuple[str, ...]
    stub: tuple[str, ...]


def source_paths(names: list[str] | None = None, folder: Path = SOURCES) -> list[Path]:
    """Sources in reading order; `names` are stems or beginnings of them ("04"). Raises BadSource for no match."""
    every = sorted(folder.glob("[0-9][0-9]_*.py"))
    if not names:
        return every
    chosen = []
    for name in names:
        stem = Path(name).stem
        found = [path for path in every if path.stem.startswith(stem)]
        if not found:
            known = ", ".join(path.stem for path in every) or "none"
            raise BadSource(f"there is no notebook source {name!r}; there are: {known}")
        chosen += [path for path in found if path not in chosen]
    return sorted(chosen)


def learner_copy(path: Path) -> Any:
    """The notebook a learner gets: stubs instead of solutions, nothing executed yet."""
    return _build(path, solved=False)


def solved_copy(path: Path) -> Any:
    """The same notebook with its solutions, markers removed."""
    return _build(path, solved=True)


def exercise_ids(notebook: Any) -> list[str]:
    """Ids of every `check("…", …)` in code cells, in order, each once."""
    code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return list(dict.fromkeys(name for source in code for name in _CHECK.findall(source)))


def _build(path: Path, solved: bool) -> Any:
    try:
        read = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    except (OSError, ValueError) as error:
        raise BadSource(f"{path.name} cannot be read: {error}") from error
    cells = []
    for place, cell in enumerate(read.cells):
        tags = list(cell.metadata.get("tags", []))
        source = cell.source.rstrip()
        if not source:
            raise BadSource(f"{path.name}, cell {place}: it is empty")
        if cell.cell_type == "code":
            where = f"{path.name}, cell {place}"
            regions = list(solution_regions(source, where))
            if regions:
                later = "\n".join(following.source for following in read.cells[place:])
                source = _solve(source, where) if solved else _stub(source, later, where)
                tags = tags if EXERCISE_TAG in tags else [*tags, EXERCISE_TAG]
        cells.append((cell.cell_type, source, tags))
    return _notebook(cells)


def _notebook(cells: list[tuple[str, str, list[str]]]) -> Any:
    """A notebook whose cell ids depend on the cells alone, and stay when others are put before them."""
    notebook = nbformat.v4.new_notebook(metadata=nbformat.from_dict(METADATA))
    seen: Counter[tuple[str, str]] = Counter()
    for kind, source, tags in cells:
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        cell = make(source)
        cell.id = cell_id(kind, source, seen[kind, source])
        seen[kind, source] += 1
        if tags:
            cell.metadata["tags"] = tags
        notebook.cells.append(cell)
    return notebook


def cell_id(kind: str, source: str, repeat: int = 0) -> str:
    """12 hex digits from a cell's source and the number of equal cells before it."""
    return hashlib.sha256(f"{kind}\n{repeat}\n{source}".encode()).hexdigest()[:12]


def solution_regions(source: str, where: str = "cell") -> Iterator[Region]:
    """Every solution in a cell. Raises BadSource for markers that do not pair up."""
    inside: list[str] | None = None
    indent = ""
    for line in source.splitlines():
        text = line.strip()
        if text.startswith(BEGIN):
            if inside is not None:
                raise BadSource(f"{where}: a solution begins inside another")
            inside, indent = [], line[: len(line) - len(line.lstrip())]
        elif text.startswith(END):
            if inside is None:
                raise BadSource(f"{where}: a solution ends that did not begin")
            stub = [part.strip()[len(STUB) :].removeprefix(" ") for part in inside if part.strip().startswith(STUB)]
            yield Region(indent, tuple(part for part in inside if not part.strip().startswith(STUB)), tuple(stub))
            inside = None
        elif inside is not None:
            inside.append(line)
    if inside is not None:
        raise BadSource(f"{where}: a solution does not end ({END} is missing)")


def _solve(source: str, where: str) -> str:
    solved = _replace(source, [list(region.solution) for region in solution_regions(source, where)])
    _parse(solved, where)
    return solved


def _stub(source: str, later: str, where: str) -> str:
    found = _CHECK.search(later)
    if found is None:
        raise BadSource(f'{where}: its solution belongs to no exercise; a lab.check("NN.N", …) must follow')
    default = [YOUR_TURN, f'raise NotImplementedError("exercise {found[1]}: your turn")']
    stubs = []
    for region in solution_regions(source, where):
        lines = list(region.stub) or default
        if any(line.strip() == "pass" for line in lines):
            raise BadSource(f"{where}: a stub of `pass` hides that the exercise is open; raise NotImplementedError")
        stubs.append([region.indent + line for line in lines])
    learner = _replace(source, stubs)
    if any(_bare_raises(_parse(learner, where))):
        raise BadSource(
            f"{where}: this stub would raise while the cell runs; give it a line such as "
            f"`{STUB} answer = ...  # your answer` (lab.check takes ... for an open exercise)"
        )
    return learner


def _replace(source: str, replacements: list[list[str]]) -> str:
    """`source` with the n-th marked region replaced by the n-th list of lines."""
    lines, queue, inside = [], iter(replacements), False
    for line in source.splitlines():
        if line.strip().startswith(BEGIN):
            inside = True
            lines += next(queue)
        elif line.strip().startswith(END):
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def parse_cell(source: str) -> ast.Module:
    """The syntax tree of a code cell, IPython magics turned into calls. Raises SyntaxError."""
    from IPython.core.inputtransformer2 import TransformerManager

    return ast.parse(TransformerManager().transform_cell(source))


def _parse(source: str, where: str) -> ast.Module:
    try:
        return parse_cell(source)
    except SyntaxError as error:
        raise BadSource(f"{where}: not Python once its solution is replaced: {error}") from error


def _bare_raises(tree: ast.AST) -> Iterator[ast.Raise]:
    """`raise` statements that run with the cell: outside every function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _bare_raises(node)
