"""Run All, twice per notebook, with nbclient: the learner's copy gets to its end and says what is still open; the
solved copy passes every check. A second opinion beside nbval, which lets bad magics and failed threads pass."""

import re

import pytest

from lab.course.checks import find
from lab.course.execute import execute
from lab.course.rules import code_cells, errors_where_announced, no_quiet_failures
from lab.course.sources import exercise_ids, learner_copy, solved_copy, source_paths

SOURCES = source_paths()
VERDICT = re.compile(r"^(✔|✘|○|\?) (?:there is no exercise )?(\d\d\.\d+)")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("LAB_QUICK", "1")


def verdicts(notebook):
    """Exercise -> the marks that `lab.check` showed for it."""
    found = {}
    for _, cell, _ in code_cells(notebook):
        for output in cell.outputs:
            match = VERDICT.match(output.get("data", {}).get("text/plain", ""))
            if match:
                found.setdefault(match[2], []).append(match[1])
    return found


def assert_no_failures(notebook):
    assert [*errors_where_announced(notebook), *no_quiet_failures(notebook)] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_learner_copy_runs_to_the_end_and_says_what_is_open(path):
    notebook = execute(learner_copy(path))
    assert_no_failures(notebook)
    assert verdicts(notebook) == {id: ["○"] for id in exercise_ids(notebook)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_solved_copy_passes_every_check(path):
    notebook = execute(solved_copy(path))
    assert_no_failures(notebook)
    assert verdicts(notebook) == {id: ["✔"] for id in exercise_ids(notebook)}
    assert all(find(id) for id in exercise_ids(notebook))
