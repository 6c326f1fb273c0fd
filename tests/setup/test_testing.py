"""`python3 -m lab test` counts everything, goes on after a failure, and ends on one line."""

import re
import sys

import pytest

from lab.setup import stages, testing
from lab.setup.stages import Stage

LAST_LINE = re.compile(r"^\d+ passed, \d+ failed, \d+ skipped$")

CASES = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.mark.skip(reason="no GPU here")
def test_skipped(): pass
@pytest.fixture
def broken(): raise RuntimeError
def test_error(broken): pass
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(testing, "ROOT", tmp_path)
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    return tmp_path


def pytest_stage(name="unit", folder="cases", **more):
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # starts in a third of the time
    return Stage(name, 60, paths=(folder,), pytest=("-q", "-p", "no:cacheprovider"), env=plain, **more)


def write(place, text, folder="cases"):
    (place / folder).mkdir(exist_ok=True)
    (place / folder / "test_it.py").write_text(text)


def test_counts_passes_failures_errors_and_skips(place):
    write(place, CASES)
    out = testing.run_stage(pytest_stage())
    assert (out.passed, out.failed, out.skipped) == (1, 2, 1)
    assert list(out.reasons) == ["no GPU here"]
    assert any("test_bad" in name for name in out.problems)


def test_a_known_fault_is_listed_as_one(place):
    write(place, "import pytest\n@pytest.mark.xfail(reason='loses a block')\ndef test_it(): assert False\n")
    out = testing.run_stage(pytest_stage())
    assert (out.failed, out.skipped, list(out.reasons)) == (0, 1, ["known fault: loses a block"])


def test_arguments_reach_pytest(place):
    write(place, CASES)
    out = testing.run_stage(pytest_stage(), ["-k", "good"])
    assert (out.passed, out.failed, out.skipped) == (1, 0, 0)


def test_no_tests_is_a_failure(place):
    write(place, "")
    out = testing.run_stage(pytest_stage())
    assert out.failed == 1 and out.problems == ["no tests were found"]


def test_a_run_that_breaks_off_is_a_failure(place):
    write(place, "import os\ndef test_dies(): os._exit(7)\n")
    out = testing.run_stage(pytest_stage())
    assert out.failed == 1 and "exit code 7" in out.problems[0]


def test_a_missing_folder_is_a_skip_with_its_reason(place):
    out = testing.run_stage(pytest_stage(folder="nowhere"))
    assert (out.failed, out.skipped) == (0, 1)
    assert list(out.reasons) == ["there is no nowhere"]


def test_plain_commands_count_one_each(place):
    good, bad = (sys.executable, "-c", "pass"), (sys.executable, "-c", "raise SystemExit(1)")
    out = testing.run_stage(Stage("lint", 5, commands=(good, bad)))
    assert (out.passed, out.failed) == (1, 1)


def test_later_stages_run_and_the_last_line_counts_all(place, monkeypatch, capsys):
    write(place, CASES)
    write(place, "def test_good(): pass", "later")
    monkeypatch.setattr(testing, "STAGES", (pytest_stage(), pytest_stage("notebooks", "later")))
    assert testing.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 2 failed, 1 skipped"
    assert LAST_LINE.match(lines[-1])
    assert "skipped in unit: 1 x no GPU here" in lines


def test_one_stage_alone_and_green(place, monkeypatch, capsys):
    write(place, CASES)
    write(place, "def test_good(): pass", "later")
    monkeypatch.setattr(testing, "STAGES", (pytest_stage(), pytest_stage("notebooks", "later")))
    assert testing.main(["notebooks"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_over_budget_is_marked_but_fails_nothing():
    out = testing.Outcome(pytest_stage(), passed=1, seconds=61.0)
    lines = testing.summary([out])
    assert any(line.endswith("OVER") for line in lines)
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"


def test_budgets_are_the_published_ones():
    budgets = {stage.name: stage.budget_s for stage in stages.STAGES}
    assert (budgets["unit"], budgets["notebooks"], budgets["browser"]) == (360, 720, 180)
