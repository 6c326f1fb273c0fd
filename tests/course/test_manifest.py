"""course.yaml says the truth about the notebooks, and a wrong one is found out."""

import dataclasses

import pytest

from lab.course import manifest
from lab.course.manifest import BadManifest, Entry, load, problems


def test_the_course_is_as_course_yaml_says():
    assert problems(load()) == []


GOOD = """
notebooks:
  - name: 98_demo
    title: Demo
    objective: Say what a demo is.
    minutes: 10
    cpu_only: true
    exercises: ["98.1"]
    tests: [tests/course/test_manifest.py, "tests/course/test_manifest.py::test_good"]
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "course.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.fixture
def sources(tmp_path, monkeypatch):
    (tmp_path / "98_demo.py").write_text('# %%\nlab.check("98.1", 3)\n')
    monkeypatch.setattr(manifest, "find", lambda id: id if id == "98.1" else None)
    monkeypatch.setattr(manifest, "exercises", lambda module: {"98.1": None})
    return tmp_path


def test_good(write, sources):
    (entry,) = load(write(GOOD))
    assert entry == Entry(
        *("98_demo", "Demo", "Say what a demo is.", 10, True, ("98.1",)),
        ("tests/course/test_manifest.py", "tests/course/test_manifest.py::test_good"),
    )
    assert problems([entry], sources) == []


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ("    minutes: 10\n", "", "98_demo: lacks the field 'minutes'"),
        ("minutes: 10", "minutes: ten", "minutes is 'ten', it must be a int"),
        ("minutes: 10", "minutes: true", "minutes is True"),
        ("cpu_only: true", "cpu_only: yes please", "cpu_only is 'yes please'"),
        ('exercises: ["98.1"]', "exercises: [98.1]", "must be a list of str"),
        ("    title: Demo", "    title: Demo\n    colour: red", "does not know the field 'colour'"),
        ("notebooks:", "books:", "needs a list called notebooks"),
        ("notebooks:", "notebooks: [", "cannot be read"),
        ("  - name: 98_demo", "  - 3\n  - name: 98_demo", "entry 0 is not a mapping"),
    ],
)
def test_a_wrong_file_is_refused(write, old, new, complaint):
    assert old in GOOD
    with pytest.raises(BadManifest, match=complaint.replace("[", r"\[")):
        load(write(GOOD.replace(old, new)))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadManifest, match="cannot be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "change, complaint",
    [
        (dict(name="98_other"), "98_other: it has no source"),
        (dict(name="98_other"), "98_demo: it has a source but is not in course.yaml"),
        (dict(minutes=0), "0 minutes"),
        (dict(minutes=500), "500 minutes"),
        (dict(objective="No sentence"), "an objective that is a sentence"),
        (dict(exercises=()), "lists the exercises [], the notebook has ['98.1']"),
        (dict(exercises=("98.1", "98.2")), "lists the exercises ['98.1', '98.2']"),
        (dict(tests=("tests/none.py",)), "there is no test tests/none.py"),
        (dict(tests=("tests/course/test_manifest.py::test_no" + "ne",)), "there is no test"),
    ],
)
def test_what_is_not_so_is_named(write, sources, change, complaint):
    (entry,) = load(write(GOOD))
    assert any(complaint in problem for problem in problems([dataclasses.replace(entry, **change)], sources))


def test_checks_and_exercises_must_meet(write, sources, monkeypatch):
    (entry,) = load(write(GOOD))
    monkeypatch.setattr(manifest, "find", lambda id: None)
    assert any("exercise 98.1 has no check" in problem for problem in problems([entry], sources))
    monkeypatch.setattr(manifest, "exercises", lambda module: {"98.1": None, "98.7": None})
    assert any("the check 98.7 is used nowhere" in problem for problem in problems([entry], sources))


def test_order_and_doubles(write, sources):
    (entry,) = load(write(GOOD))
    assert any("reading order" in problem for problem in problems([entry, entry], sources))
