"""`python3 -m lab notebooks`: make the learner's copies from their sources, execute them, or check that they match.

python3 -m lab notebooks                      write notebooks/*.ipynb, keeping outputs that are still true
python3 -m lab notebooks --execute 04         write one, freshly executed
python3 -m lab notebooks --check              write nothing; say which copies differ or break a rule
python3 -m lab notebooks --solved FOLDER      write solved copies there (with --execute: executed)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from lab.course.execute import NotebookFailed, execute
from lab.course.rules import violations_of
from lab.course.sources import NOTEBOOKS, SOURCES, BadSource, learner_copy, solved_copy, source_paths
from lab.errors import LabError


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 when a copy differs, a cell fails or a source is wrong."""
    options = _options(argv)
    try:
        paths = source_paths(options.names, options.source)
        if options.check:
            return _report(check(paths, options.out, everything=not options.names) + broken_rules(paths, options.out))
        return _write(paths, options)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python3 -m lab notebooks",
        description="Make the learner's notebooks from notebooks/instructor/source.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a notebook, or how its name begins: 04 (default: all)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="write nothing; say which copies do not match their source")
    what.add_argument("--execute", action="store_true", help="run the notebooks and store their outputs")
    parser.add_argument("--solved", metavar="FOLDER", type=Path, help="write copies with solutions there instead")
    parser.add_argument("--source", type=Path, default=SOURCES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=NOTEBOOKS, help=argparse.SUPPRESS)
    return parser.parse_args(list(argv))


def _write(paths: list[Path], options: argparse.Namespace) -> int:
    """Build, execute where asked, write. A notebook that fails is reported and left as it was."""
    folder = options.solved or options.out
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for path in paths:
        notebook = solved_copy(path) if options.solved else learner_copy(path)
        target = folder / f"{path.stem}.ipynb"
        note = ""
        if options.execute:
            started = time.monotonic()
            try:
                execute(notebook, NOTEBOOKS)
            except NotebookFailed as error:
                print(f"{target.name}: failed, not written\n{error}", file=sys.stderr)
                failed += 1
                continue
            note = f", executed in {time.monotonic() - started:.0f} s"
        elif not options.solved:
            note = keep_outputs(notebook, target)
        target.write_text(text_of(notebook), encoding="utf-8")
        print(f"{target.name}: {len(notebook.cells)} cells{note}")
    return 1 if failed else 0


def text_of(notebook: Any) -> str:
    """The file's content: the same notebook gives the same bytes."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def keep_outputs(notebook: Any, target: Path) -> str:
    """Take over the outputs stored in `target` if all code cells are still the same; returns what to tell."""
    old = read_copy(target)
    if old is None:
        return "; no outputs yet: run with --execute"
    ours = [cell for cell in notebook.cells if cell.cell_type == "code"]
    theirs = [cell for cell in old.cells if cell.cell_type == "code"]
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        return "; its code has changed, so its outputs are gone: run with --execute"
    for cell, stored in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = stored.outputs, stored.execution_count
    return ""


def read_copy(path: Path) -> Any | None:
    """A stored notebook, or None where there is none that can be read."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError):
        return None


def check(paths: list[Path], folder: Path = NOTEBOOKS, everything: bool = True) -> list[str]:
    """Every way in which the copies in `folder` differ from their sources; with `everything`, orphans too."""
    problems = []
    for path in paths:
        try:
            wanted = learner_copy(path)
        except BadSource as error:
            problems.append(str(error))
            continue
        difference = differs(wanted, read_copy(folder / f"{path.stem}.ipynb"))
        if difference:
            problems.append(f"{path.stem}.ipynb: {difference}; run `python3 -m lab notebooks --execute {path.stem}`")
    if everything:
        known = {path.stem for path in paths}
        orphans = [path.name for path in sorted(folder.glob("*.ipynb")) if path.stem not in known]
        problems += [f"{name}: it has no source in notebooks/instructor/source" for name in orphans]
    return problems


def broken_rules(paths: list[Path], folder: Path = NOTEBOOKS) -> list[str]:
    """Every rule that a stored copy breaks (see lab/course/rules.py)."""
    copies = [folder / f"{path.stem}.ipynb" for path in paths]
    return [f"{copy.name}, {text}" for copy in copies if read_copy(copy) for text in violations_of(copy)]


def differs(wanted: Any, stored: Any | None) -> str:
    """How a stored copy differs from the one its source makes, outputs aside; "" when it does not."""
    if stored is None:
        return "there is no such copy, or it cannot be read"
    for place, (ours, theirs) in enumerate(zip(wanted.cells, stored.cells, strict=False)):
        for part in ("cell_type", "source", "metadata", "id"):
            if ours.get(part) != theirs.get(part):
                return f"cell {place} has another {part.replace('cell_', '')} than its source"
    if len(wanted.cells) != len(stored.cells):
        return f"it has {len(stored.cells)} cells, its source makes {len(wanted.cells)}"
    return "" if wanted.metadata == stored.metadata else "it has other notebook metadata"


def _report(problems: list[str]) -> int:
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "every notebook matches its source and keeps the rules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
