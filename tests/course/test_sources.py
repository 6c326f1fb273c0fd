"""The generator: one source, two notebooks, the same bytes every time, and clear words for a wrong source."""

import nbformat
import pytest

from lab.course import generate
from lab.course.checks import check
from lab.course.sources import (
    BadSource,
    cell_id,
    exercise_ids,
    learner_copy,
    solution_regions,
    solved_copy,
    source_paths,
)

SOURCE = '''\
# %% [markdown]
# # A title
#
# A list:
#
# - *one*
# - `two`
#
# | a | b |
# |--:|:--|
# | 1 | 2 |
#
# ```python
# ### BEGIN SOLUTION is only text here
# ```

# %% tags=["nbval-check-output"]
# %matplotlib inline
print("hello")

# %%
def blocks_for(num_tokens, block_size):
    """Blocks that hold num_tokens."""
    ### BEGIN SOLUTION
    whole = num_tokens // block_size

    return whole + (num_tokens % block_size > 0)
    ### END SOLUTION


check("98.1", blocks_for)

# %%
### BEGIN SOLUTION
### STUB: answer = ...  # a number
answer = 3
### END SOLUTION

# %% [markdown]
# Between an exercise and its check may stand anything.

# %%
check("98.2", answer)
'''


@pytest.fixture
def source(tmp_path):
    """Write a source and return its path."""

    def write(text=SOURCE, name="98_demo.py"):
        (tmp_path / "source").mkdir(exist_ok=True)
        path = tmp_path / "source" / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def cell(*lines):
    return "# %%\n" + "\n".join(lines) + "\n"


def test_learner_gets_stubs(source):
    notebook = learner_copy(source())
    assert notebook.cells[2].source == (
        'def blocks_for(num_tokens, block_size):\n    """Blocks that hold num_tokens."""\n'
        "    # YOUR TURN: replace the next line\n"
        '    raise NotImplementedError("exercise 98.1: your turn")\n\n\n'
        'check("98.1", blocks_for)'
    )
    assert notebook.cells[3].source == "answer = ...  # a number"
    assert [cell.metadata.get("tags") for cell in notebook.cells[1:4]] == [
        ["nbval-check-output"],
        ["exercise"],
        ["exercise"],
    ]


def test_solved_copy_has_solutions_and_no_markers(source):
    notebook = solved_copy(source())
    assert "return whole + (num_tokens % block_size > 0)" in notebook.cells[2].source
    assert notebook.cells[3].source == "answer = 3"
    code = "".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "SOLUTION" not in code and "STUB" not in code


def test_markdown_and_magics_survive(source):
    notebook = learner_copy(source())
    prose = SOURCE.split("\n\n# %%")[0].splitlines()[1:]
    assert notebook.cells[0].source == "\n".join(line[2:] for line in prose)
    assert notebook.cells[1].source == '%matplotlib inline\nprint("hello")'


def test_stub_answers_are_open(source):
    names = {}
    exec(learner_copy(source()).cells[2].source.replace("check(", "print("), names)
    assert check("98.1", names["blocks_for"]).status in ("open", "unknown")
    with pytest.raises(NotImplementedError, match="exercise 98.1"):
        names["blocks_for"](1, 2)


def test_exercise_ids_in_order_and_once(source):
    assert exercise_ids(learner_copy(source())) == ["98.1", "98.2"]
    twice = SOURCE + "\n# %%\ncheck('98.1', 3)\n"
    assert exercise_ids(learner_copy(source(twice))) == ["98.1", "98.2"]


def test_same_source_same_bytes(source):
    first, second = (generate.text_of(learner_copy(source())) for _ in range(2))
    assert first == second


def test_ids_are_unique_valid_and_stay_when_a_cell_comes_before(source):
    before = [c.id for c in learner_copy(source(SOURCE + "\n# %%\nprint(1)\n\n# %%\nprint(1)\n")).cells]
    assert len(set(before)) == len(before)
    after = [c.id for c in learner_copy(source("# %% [markdown]\n# New\n\n" + SOURCE)).cells]
    assert after[1:] == before[:-2]
    assert cell_id("code", "x") != cell_id("markdown", "x") != cell_id("markdown", "x", 1)


@pytest.mark.parametrize(
    "lines, complaint",
    [
        (["### BEGIN SOLUTION", "x = 1"], "does not end"),
        (["### END SOLUTION"], "did not begin"),
        (["### BEGIN SOLUTION", "### BEGIN SOLUTION", "### END SOLUTION"], "begins inside another"),
        (["### BEGIN SOLUTION", "x = 1", "### END SOLUTION"], "no exercise"),
        (["### BEGIN SOLUTION", "x = 1", "### END SOLUTION", 'check("98.1", x)'], "would raise while the cell runs"),
        (
            ["if True:", "    ### BEGIN SOLUTION", "    x = 1", "    ### END SOLUTION", 'check("98.1", x)'],
            "would raise while the cell runs",
        ),
        (
            ["def f():", "    ### BEGIN SOLUTION", "    ### STUB: pass", "    ### END SOLUTION", 'check("98.1", f)'],
            "stub of `pass`",
        ),
        (
            [
                "def f():",
                "    ### BEGIN SOLUTION",
                "    ### STUB: return (",
                "    ### END SOLUTION",
                'check("98.1", f)',
            ],
            "not Python",
        ),
    ],
)
def test_wrong_sources_are_refused_with_the_cell(source, lines, complaint):
    path = source("# %% [markdown]\n# Title\n\n" + cell(*lines))
    with pytest.raises(BadSource, match=complaint) as caught:
        learner_copy(path)
    assert "98_demo.py, cell 1" in str(caught.value)


def test_a_solution_that_is_not_python_is_refused(source):
    path = source(
        cell("def f():", "    ### BEGIN SOLUTION", "    return (", "    ### END SOLUTION", 'check("98.1", f)')
    )
    assert learner_copy(path)
    with pytest.raises(BadSource, match="not Python"):
        solved_copy(path)


def test_two_regions_in_one_cell():
    text = "\n".join(f"    ### BEGIN SOLUTION\n    {name}\n    ### END SOLUTION\n    between" for name in "ac")
    assert [region.solution for region in solution_regions(text)] == [("    a",), ("    c",)]


def test_source_paths_by_name(source, tmp_path):
    folder = source().parent
    source(name="05_other.py"), source(name="notes.py")
    assert [path.stem for path in source_paths(folder=folder)] == ["05_other", "98_demo"]
    assert [path.stem for path in source_paths(["98", "98_demo.ipynb"], folder)] == ["98_demo"]
    with pytest.raises(BadSource, match="05_other, 98_demo"):
        source_paths(["07"], folder)


@pytest.fixture
def lab_notebooks(source, tmp_path, capsys):
    """Run the command on the demo source; returns (exit code, what it printed)."""
    source()

    def run(*arguments):
        code = generate.main([*arguments, "--source", str(tmp_path / "source"), "--out", str(tmp_path)])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def test_write_then_check(lab_notebooks, tmp_path):
    assert "there is no such copy" in lab_notebooks("--check")[1]
    code, text = lab_notebooks()
    assert code == 0 and "no outputs yet" in text
    assert "another" not in lab_notebooks("--check")[1]
    first = (tmp_path / "98_demo.ipynb").read_bytes()
    lab_notebooks()
    assert (tmp_path / "98_demo.ipynb").read_bytes() == first


def edited(path, change):
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda nb: nb.cells[0].update(source="other"), "cell 0 has another source"),
        (lambda nb: nb.cells[2].metadata.update(tags=[]), "cell 2 has another metadata"),
        (lambda nb: nb.cells.pop(), "it has 5 cells, its source makes 6"),
        (lambda nb: nb.metadata.update(author="x"), "other notebook metadata"),
        (lambda nb: nb.cells[1].update(id="abc"), "cell 1 has another id"),
    ],
)
def test_check_sees_every_edit_of_a_copy(lab_notebooks, tmp_path, change, complaint):
    lab_notebooks()
    edited(tmp_path / "98_demo.ipynb", change)
    code, text = lab_notebooks("--check")
    assert code == 1 and complaint in text


def test_check_ignores_outputs_and_sees_orphans(lab_notebooks, tmp_path):
    lab_notebooks()
    output = nbformat.v4.new_output("stream", text="hello\n")
    edited(tmp_path / "98_demo.ipynb", lambda nb: nb.cells[1].update(outputs=[output], execution_count=3))
    assert "another" not in lab_notebooks("--check")[1]
    (tmp_path / "97_orphan.ipynb").write_text("{}")
    assert "97_orphan.ipynb: it has no source" in lab_notebooks("--check")[1]
    assert "97_orphan" not in lab_notebooks("--check", "98")[1]


def test_outputs_are_kept_when_only_prose_changes(lab_notebooks, source, tmp_path):
    lab_notebooks()
    output = nbformat.v4.new_output("stream", text="hello\n")
    copy = tmp_path / "98_demo.ipynb"
    edited(copy, lambda nb: nb.cells[1].update(outputs=[output], execution_count=3))
    source(SOURCE.replace("# # A title", "# # Another title"))
    lab_notebooks()
    kept = nbformat.read(copy, as_version=4)
    assert kept.cells[1].outputs == [output] and kept.cells[0].source.startswith("# Another title")
    source(SOURCE.replace('"hello"', '"bye"'))
    assert "outputs are gone" in lab_notebooks()[1]
    assert nbformat.read(copy, as_version=4).cells[1].outputs == []


def test_errors_are_one_sentence(lab_notebooks, source):
    assert lab_notebooks("07") == (1, "there is no notebook source '07'; there are: 98_demo\n")
    source(cell("### END SOLUTION"))
    code, text = lab_notebooks()
    assert code == 1 and text == "98_demo.py, cell 0: a solution ends that did not begin\n"
    assert "did not begin" in lab_notebooks("--check")[1]


def test_solved_copies_go_where_they_are_asked(lab_notebooks, tmp_path):
    lab_notebooks("--solved", str(tmp_path / "solved"))
    assert "answer = 3" in (tmp_path / "solved" / "98_demo.ipynb").read_text()
    assert not (tmp_path / "98_demo.ipynb").exists()
