"""Execution in a real kernel: what is stored, and failures that other runners let pass."""

import nbformat
import pytest

from lab.course.execute import NotebookFailed, execute, merged, tidy


def notebook(*sources, tags=None):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for place, names in (tags or {}).items():
        cells[place].metadata["tags"] = names
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "x"}})


def outputs(cell):
    return [(output.output_type, output.get("text") or output.get("data")) for output in cell.outputs]


def test_outputs_without_widgets_times_or_versions(tmp_path):
    made = execute(
        notebook(
            "import ipywidgets\nipywidgets.IntSlider()",
            'import lab\nlab.predict("98.1", "How many?", unit="steps")',
            'lab.reveal("98.1", 4)',
            "import os\nprint(os.environ['LAB_PROGRESS_DIR'] != '', os.path.basename(os.getcwd()))",
            "print('a'); print('b')\n1 + 1",
        ),
        tmp_path,
    )
    assert made.metadata == tidy(notebook()).metadata and "widgets" not in made.metadata
    assert all("execution" not in cell.metadata for cell in made.cells)
    assert made.cells[0].outputs == []
    assert set(made.cells[1].outputs[0].data) == {"text/plain", "text/html"}
    assert "No prediction made yet." in made.cells[1].outputs[0].data["text/plain"]
    assert made.cells[2].outputs[0].data["text/plain"] == "No prediction made. Result: 4 steps."
    assert outputs(made.cells[3]) == [("stream", f"True {tmp_path.name}\n")]
    assert outputs(made.cells[4]) == [("stream", "a\nb\n"), ("execute_result", {"text/plain": "2"})]
    assert [cell.execution_count for cell in made.cells] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "source, said",
    [
        ("1 // 0", "ZeroDivisionError"),
        ("%no_such_magic", "no_such_magic"),
        ("%no_such_magic\nraise TypeError('hidden behind the magic')", "no_such_magic|hidden"),
        ("import threading\nt = threading.Thread(target=lambda: 1 // 0)\nt.start()\nt.join()", "Exception in thread"),
    ],
)
def test_failures_are_failures(tmp_path, source, said):
    with pytest.raises(NotebookFailed, match=said):
        execute(notebook("print('before')", source), tmp_path)


def test_an_announced_exception_is_stored(tmp_path):
    made = execute(notebook("1 // 0", "print('after')", tags={0: ["raises-exception"]}), tmp_path)
    assert made.cells[0].outputs[0].traceback == ["ZeroDivisionError: integer division or modulo by zero"]
    assert outputs(made.cells[1]) == [("stream", "after\n")]


def test_a_cell_that_does_not_end_fails(tmp_path):
    with pytest.raises(NotebookFailed, match="time"):
        execute(notebook("import time\ntime.sleep(60)"), tmp_path, cell_seconds=2)


def test_merged_joins_only_the_same_stream():
    streams = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in (("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d"))
    ]
    assert [(piece.name, piece.text) for piece in merged(streams)] == [
        ("stdout", "ab"),
        ("stderr", "c"),
        ("stdout", "d"),
    ]
