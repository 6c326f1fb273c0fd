"""Run a notebook from top to bottom and keep only what may be stored: no widget state, no times, no addresses."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.course.sources import METADATA, NOTEBOOKS
from lab.errors import LabError

WIDGET = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 300
QUIET_FAILURE = re.compile(r"Exception in thread|Exception ignored in|UsageError: .* magic function .* not found")


class NotebookFailed(LabError):
    """A cell raised, or did not end in time; the message shows the cell and what it said."""


def execute(notebook: Any, folder: Path = NOTEBOOKS, cell_seconds: int = CELL_SECONDS) -> Any:
    """Execute all cells in a fresh kernel of this environment and tidy the outputs; changes and returns `notebook`.

    The kernel starts in `folder`, as it does for a learner, and sees an empty progress folder. Raises
    NotebookFailed at the first cell that raises without the tag raises-exception, or takes too long, and for what
    other runners let pass: an exception in a thread, an unknown magic.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        with _own_progress():
            client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookFailed(str(error)) from error
    for place, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if match := QUIET_FAILURE.search(output.get("text", "")):
                raise NotebookFailed(f"cell {place} did not fail, but says {match[0]!r}:\n{output.text}")
    return tidy(notebook)


@contextmanager
def _own_progress() -> Iterator[None]:
    """Let kernels started inside write guesses to a folder that is thrown away, and come from this environment."""
    with tempfile.TemporaryDirectory() as folder:
        mine = {"LAB_PROGRESS_DIR": folder, "JUPYTER_PREFER_ENV_PATH": "1"}
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def tidy(notebook: Any) -> Any:
    """Drop what differs from run to run or needs a kernel: widgets, times, versions, most of tracebacks."""
    import nbformat

    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = merged([output for output in cell.outputs if _keep(output)])
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = [f"{output.ename}: {output.evalue}"]
    return notebook


def _keep(output: Any) -> bool:
    """Reduce a widget's output to its fallback; False when it has none (an HTML twin)."""
    data = output.get("data")
    if data is None or WIDGET not in data:
        return True
    del data[WIDGET]
    return "text/html" in data or "text/markdown" in data


def merged(outputs: list[Any]) -> list[Any]:
    """Join neighbouring pieces of the same stream: how a print is cut into messages is chance."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined
