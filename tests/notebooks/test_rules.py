"""Every notebook keeps the rules, matches its source and is in course.yaml; and every rule can fail."""

import nbformat
import pytest

from lab.course import generate
from lab.course.rules import MOST_BYTES, RULES, dead_links, violations, violations_of
from lab.course.sources import METADATA, NOTEBOOKS, learner_copy, solution_regions, source_paths

COPIES = sorted(NOTEBOOKS.glob("*.ipynb"))
MOST_SOLUTION_LINES = 15


def test_there_are_notebooks():
    assert COPIES


@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)
def test_notebook_keeps_the_rules(path):
    assert violations_of(path) == []


@pytest.mark.parametrize("path", COPIES, ids=lambda path: path.stem)
def test_every_code_cell_was_executed_in_order(path):
    counts = [c.execution_count for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def test_copies_match_their_sources():
    assert generate.check(source_paths()) == []


@pytest.mark.parametrize("path", source_paths(), ids=lambda path: path.stem)
def test_solutions_are_short(path):
    text = path.read_text(encoding="utf-8")
    lengths = [len("\n".join(region.solution).strip().splitlines()) for region in solution_regions(text)]
    assert all(length <= MOST_SOLUTION_LINES for length in lengths), lengths


@pytest.mark.parametrize("path", source_paths(), ids=lambda path: path.stem)
def test_the_pattern_of_a_lesson(path):
    """A question, a prediction that is revealed, at least one exercise with a check."""
    code = "\n".join(cell.source for cell in learner_copy(path).cells if cell.cell_type == "code")
    prose = "\n".join(cell.source for cell in learner_copy(path).cells if cell.cell_type == "markdown")
    assert "?" in prose and "lab.predict(" in code and "lab.reveal(" in code and "lab.check(" in code


# -- every rule can fail ------------------------------------------------------------------------------------


def output(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


def error(text):
    return nbformat.v4.new_output("error", ename="E", evalue=text, traceback=[])


def display(**data):
    return nbformat.v4.new_output("display_data", data={key.replace("__", "/"): value for key, value in data.items()})


def code(source="print(1)", *outputs, tags=()):
    cell = nbformat.v4.new_code_cell(source, outputs=list(outputs))
    if tags:
        cell.metadata["tags"] = list(tags)
    return cell


def book(*cells, **metadata):
    made = nbformat.v4.new_notebook(cells=list(cells), metadata=nbformat.from_dict(METADATA))
    made.metadata.update(metadata)
    return made


GOOD = code("print(1)", output("1\n"), tags=["nbval-check-output"])
RAISES = ["raises-exception"]
PNG = {"image/png": "iVBOR" + "/home/a" * 3}


def test_a_good_notebook_breaks_no_rule():
    twin = {**PNG, "text/plain": "Bar chart: static 10 s, continuous 4 s"}
    raising = code("1 // 0", error("division"), tags=["raises-exception"])
    exercise = code("class Mine:\n    pass", tags=["exercise"])
    named = display(text__html='<svg role="img" aria-label="Four bars, the last is longest">', text__plain="x")
    good = book(
        nbformat.v4.new_markdown_cell("# Title\n![Four bars of equal height](a.png) and/or see data/models/x"),
        GOOD,
        code("show()", nbformat.v4.new_output("display_data", data=twin), named),
        raising,
        exercise,
        code("%matplotlib inline"),
    )
    assert violations(good) == []


BROKEN = {
    "checked cell without output": (
        book(GOOD, code(tags=["nbval-check-output"])),
        "cell 1: its output is checked, but none is stored",
    ),
    "no output at all": (book(code()), "no cell has a stored output"),
    "widget state": (book(GOOD, widgets={"state": {}}), "the metadata hold widget state"),
    "widget view": (
        book(code("x", display(**{"application/vnd.jupyter.widget-view+json": {}}))),
        "cell 0: a widget view is stored",
    ),
    "another kernel": (book(GOOD, kernelspec={"name": "my-env"}), "its kernel is not python3"),
    "unknown tag": (book(GOOD, code(tags=["nbval-chek-output"])), "cell 1: unknown tag 'nbval-chek-output'"),
    "error": (book(GOOD, code("1//0", error("x"))), "cell 1: it shows an error without the tag"),
    "no error": (
        book(GOOD, code("1", tags=["raises-exception"])),
        "cell 1: it is to raise an exception and does not",
    ),
    "long cell": (book(GOOD, code("\n".join(["x = 1"] * 16))), "cell 1: 16 lines of code"),
    "long exercise": (book(GOOD, code("\n".join(["x = 1"] * 16), tags=["exercise"])), "cell 1: 16 lines of code"),
    "not Python": (book(GOOD, code("def f(:")), "cell 1: it is not Python"),
    "torch": (book(GOOD, code("import torch.nn as nn", tags=["exercise"])), "cell 1: it imports torch"),
    "from torch": (book(GOOD, code("def f():\n    from torch import nn")), "cell 1: it imports torch"),
    "shell": (book(GOOD, code("!pip install x")), "cell 1: it uses a cell magic or the shell"),
    "cell magic": (book(GOOD, code("%%bash\nls")), "cell 1: it uses a cell magic or the shell"),
    "class": (book(GOOD, code("if True:\n    class Engine:\n        pass")), "cell 1: it defines the class Engine"),
    "picture without twin": (book(GOOD, code("x", nbformat.v4.new_output("display_data", data=PNG))), "no text twin"),
    "picture with a repr": (
        book(GOOD, code("x", display(image__png="iVBO", text__plain="<Figure size 640x480 with 1 Axes>"))),
        "image/png has no text twin",
    ),
    "plotly without twin": (
        book(
            GOOD,
            code("x", display(**{"application/vnd.plotly.v1+json": {}, "text/plain": "Figure({ 'data': [1, 2] })"})),
        ),
        "plotly.v1+json has no text twin",
    ),
    "bare img": (book(GOOD, code("x", display(text__html='<img src="x.png">'))), "<img… has no alt text"),
    "bare canvas": (book(GOOD, code("x", display(text__html="<canvas></canvas>"))), "has no alt text"),
    "bare svg": (book(GOOD, code("x", display(text__html="<svg><path/></svg>"))), "<svg… has neither"),
    "bare Markdown picture": (book(GOOD, nbformat.v4.new_markdown_cell("![](x.png)")), "no alt text"),
    "path in output": (book(code("x", output("saved in /home/ann/out.json\n"))), "the path '/home/ann' is of one"),
    "path in source": (book(GOOD, code("open('/tmp/x')")), "the path '/tmp/x' is of one"),
    "path in prose": (book(GOOD, nbformat.v4.new_markdown_cell("see /Users/ann/x")), "the path '/Users/ann'"),
    "Windows path": (book(code("x", output("C:\\Users\\ann\n"))), "the path 'C:"),
    "path in a traceback": (
        book(
            code("x", nbformat.v4.new_output("error", ename="E", traceback=["\x1b[32m/home/ann/x.py"]), tags=RAISES)
        ),
        "the path '/home/ann' is of one",
    ),
    "address": (book(code("x", display(text__plain="<A at 0x7f3c8bb92050>"))), "the address '0x7f3c8bb92050'"),
    "thread": (
        book(code("x", output("Exception in thread Thread-1:\n", name="stderr"))),
        "its output says 'Exception in thread'",
    ),
    "magic": (
        book(code("%x", output("UsageError: Line magic function `%x` not found.\n", name="stderr"))),
        "its output says 'UsageError",
    ),
    "checked guess": (
        book(code('lab.reveal("04.1", 3)', output("x"), tags=["nbval-check-output"])),
        "so the output cannot be checked",
    ),
    "large": (book(code("x", output("x" * MOST_BYTES))), "bytes, at most 300,000"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_notebook_is_found_out(name):
    broken, complaint = BROKEN[name]
    found = violations(broken)
    assert any(complaint in message for message in found), found
    assert len(found) == 1, found


def test_dead_links_are_found_out(tmp_path):
    (tmp_path / "00_start.ipynb").write_text("{}")
    prose = "[there](00_start.ipynb#part) [web](https://example.org/x) [not](05_none.ipynb) `a[0](x y)`"
    assert dead_links(book(nbformat.v4.new_markdown_cell(prose)), tmp_path) == ["cell 0: there is no 05_none.ipynb"]


def test_times_are_found_out():
    timed = code("x", output("x"))
    timed.metadata["execution"] = {"iopub.execute_input": "2024-01-01T00:00:00Z"}
    assert violations(book(timed)) == ["cell 0: execution times are stored"]


def test_every_rule_is_broken_by_one_of_these():
    assert all(any(list(rule(broken)) for broken, _ in BROKEN.values()) for rule in RULES)
