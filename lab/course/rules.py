"""What every notebook of the course keeps to, so that a stored copy is true, small, readable and testable.

`violations` names each rule a notebook breaks. A rule is a function of the notebook that yields messages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.course.execute import QUIET_FAILURE, WIDGET
from lab.course.sources import EXERCISE_TAG, METADATA, parse_cell

CHECKED, RAISES = "nbval-check-output", "raises-exception"
TAGS = frozenset({CHECKED, "nbval-ignore-output", "nbval-skip", RAISES, EXERCISE_TAG})
MOST_BYTES = 300_000
MOST_LINES = 15
FEWEST_WORDS = 3  # of a text twin

_ABSOLUTE = re.compile(r"(?<![\w./~:-])/(?:home|root|Users|tmp|usr|opt|var|mnt|private|work|workspace|srv)/[\w.-]+")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\+(?:Users|Windows|Program)", re.IGNORECASE)
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#|attachment:)([^)#\s]+)(?:#[^)\s]*)?\)")
_OBJECT = re.compile(r"^\s*<.*>\s*$|^\s*(?:Figure|FigureWidget|HBox|VBox)\(", re.DOTALL)

Rule = Callable[[Any], Iterator[str]]


def violations(notebook: Any, size: int | None = None) -> list[str]:
    """Every broken rule of one notebook, as sentences that name the cell. `size` is the file's, in bytes."""
    found = [message for rule in RULES for message in rule(notebook)]
    bytes_ = len(json.dumps(notebook)) if size is None else size
    if bytes_ > MOST_BYTES:
        found.append(f"it has {bytes_:,} bytes, at most {MOST_BYTES:,} are allowed: make its pictures smaller")
    return found


def violations_of(path: Path) -> list[str]:
    """The same for a file."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    return violations(notebook, path.stat().st_size) + dead_links(notebook, path.parent)


def dead_links(notebook: Any, folder: Path) -> list[str]:
    """Links in prose to files that are not there; the web is not asked."""
    found = []
    for place, cell in enumerate(notebook.cells):
        links = _LINK.findall(cell.source) if cell.cell_type == "markdown" else []
        found += [f"cell {place}: there is no {link}" for link in links if not (folder / link).exists()]
    return found


def code_cells(notebook: Any) -> Iterator[tuple[str, Any, list[str]]]:
    """(where, cell, tags) of every code cell."""
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            yield f"cell {place}", cell, cell.metadata.get("tags", [])


def stored_outputs(notebook: Any) -> Iterator[str]:
    """A checked cell without a stored output checks nothing; nor does a notebook without any."""
    any_output = False
    for where, cell, tags in code_cells(notebook):
        any_output |= bool(cell.outputs)
        if CHECKED in tags and not cell.outputs:
            yield f"{where}: its output is checked, but none is stored"
    if not any_output:
        yield "no cell has a stored output: run `python3 -m lab notebooks --execute`"


def no_widget_state(notebook: Any) -> Iterator[str]:
    """Widgets are dead without their kernel, and large."""
    if "widgets" in notebook.metadata:
        yield "the metadata hold widget state"
    for where, cell, _ in code_cells(notebook):
        if any(WIDGET in output.get("data", {}) for output in cell.outputs):
            yield f"{where}: a widget view is stored"


def known_metadata(notebook: Any) -> Iterator[str]:
    """Only tags that something acts on; the kernel that is everywhere; no times."""
    if notebook.metadata.get("kernelspec") != METADATA["kernelspec"]:
        yield "its kernel is not python3"
    for place, cell in enumerate(notebook.cells):
        for tag in cell.metadata.get("tags", []):
            if tag not in TAGS:
                yield f"cell {place}: unknown tag {tag!r}; there are {', '.join(sorted(TAGS))}"
        if "execution" in cell.metadata:
            yield f"cell {place}: execution times are stored"


def errors_where_announced(notebook: Any) -> Iterator[str]:
    """An error is shown where, and only where, the tag raises-exception says so."""
    for where, cell, tags in code_cells(notebook):
        raised = any(output.output_type == "error" for output in cell.outputs)
        if raised and RAISES not in tags:
            yield f"{where}: it shows an error without the tag {RAISES}"
        if RAISES in tags and not raised:
            yield f"{where}: it is to raise an exception and does not"


def no_engine_code(notebook: Any) -> Iterator[str]:
    """No classes outside exercises, torch nowhere; every cell is Python, and short (hence every function)."""
    for where, cell, tags in code_cells(notebook):
        lines = len(cell.source.splitlines())
        if lines > MOST_LINES:
            yield f"{where}: {lines} lines of code, at most {MOST_LINES} are allowed"
        try:
            tree = parse_cell(cell.source)
        except SyntaxError as error:
            yield f"{where}: it is not Python: {error.msg}"
            continue
        for node in ast.walk(tree):
            yield from (f"{where}: {what}" for what in _of_the_engine(node, EXERCISE_TAG in tags))


def _of_the_engine(node: ast.AST, in_exercise: bool) -> Iterator[str]:
    imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    if any(name.split(".")[0] == "torch" for name in imported):
        yield "it imports torch; tensors belong into lab/execution"
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("run_cell_magic", "get_ipython().system")):
        yield "it uses a cell magic or the shell"
    if isinstance(node, ast.ClassDef) and not in_exercise:
        yield f"it defines the class {node.name}; classes belong into lab"


def pictures_have_twins(notebook: Any) -> Iterator[str]:
    """Whoever cannot see a picture gets the same from a text."""
    for where, cell, _ in code_cells(notebook):
        for output in cell.outputs:
            kinds = output.get("data", {})
            pictured = [kind for kind in kinds if kind.startswith("image/") or "plotly" in kind]
            plain = kinds.get("text/plain", "")
            if pictured and not _is_text(plain):
                yield f"{where}: {pictured[0]} has no text twin (text/plain says {plain[:40]!r})"
            yield from (f"{where}: {what}" for what in _bare_pictures(kinds.get("text/html", "")))
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            yield from (f"cell {place}: {what}" for what in _bare_pictures(cell.source))
            if re.search(r"!\[\s*\]\(", cell.source):
                yield f"cell {place}: a Markdown picture has no alt text"


def _is_text(plain: str) -> bool:
    return len(plain.split()) >= FEWEST_WORDS and not _OBJECT.search(plain)


def _bare_pictures(html: str) -> Iterator[str]:
    for tag in re.findall(r"<(?:img|canvas)\b[^>]*>", html):
        if not re.search(r"""(?:alt|aria-label)=["'][^"']{5,}""", tag):
            yield f"{tag[:4]}… has no alt text"
    for start in re.finditer(r"<svg\b[^>]*>", html):
        head = html[start.start() : start.end() + 400]
        if not re.search(r"""aria-label=["'][^"']{5,}|<title[^>]*>[^<]{5,}|aria-hidden=["']true""", head):
            yield "<svg… has neither aria-label nor title"


def nothing_local(notebook: Any) -> Iterator[str]:
    """No folders of the author's computer, no addresses in memory: they differ everywhere."""
    for place, cell in enumerate(notebook.cells):
        texts = [cell.source, *(text for output in cell.get("outputs", []) for text in _texts(output))]
        for text in texts:
            for kind, pattern in (("path", _ABSOLUTE), ("path", _WINDOWS), ("address", _ADDRESS)):
                if match := pattern.search(_COLOUR.sub("", text)):
                    yield f"cell {place}: the {kind} {match[0]!r} is of one computer only"


def no_quiet_failures(notebook: Any) -> Iterator[str]:
    """An exception in a thread, or an unknown magic, may fail no cell; it only prints."""
    for where, cell, _ in code_cells(notebook):
        for text in (text for output in cell.outputs for text in _texts(output)):
            if match := QUIET_FAILURE.search(text):
                yield f"{where}: its output says {match[0]!r}"


def guesses_unchecked(notebook: Any) -> Iterator[str]:
    """What a cell with predict or reveal shows depends on the learner."""
    for where, cell, tags in code_cells(notebook):
        if CHECKED in tags and re.search(r"\b(?:predict|reveal|seat_check)\(", cell.source):
            yield f"{where}: a guess or a computer is shown, so the output cannot be checked"


def _texts(output: Any) -> Iterator[str]:
    """Everything readable in an output, pictures left out."""
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield "\n".join([output.evalue, *output.traceback])
    else:
        for kind, value in output.data.items():
            if kind.startswith("text/"):
                yield value


RULES: tuple[Rule, ...] = (
    stored_outputs,
    no_widget_state,
    known_metadata,
    errors_where_announced,
    no_engine_code,
    pictures_have_twins,
    nothing_local,
    no_quiet_failures,
    guesses_unchecked,
)
