"""`notebooks/course.yaml`: what each notebook is for, how long it takes, its exercises, and the tests behind it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lab.course.checks import exercises, find
from lab.course.sources import NOTEBOOKS, SOURCES, BadSource, exercise_ids, solved_copy, source_paths
from lab.errors import LabError
from lab.setup.paths import ROOT

PATH = NOTEBOOKS / "course.yaml"
LONGEST_MINUTES = 90


class BadManifest(LabError):
    """course.yaml cannot be used; the message names entry and field."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One notebook. `tests` are test files, or file::name, that show what it claims."""

    name: str
    title: str
    objective: str  # what the learner can do afterwards, one sentence
    minutes: int  # for a learner, exercises included
    cpu_only: bool  # everything in it runs without a GPU
    exercises: tuple[str, ...]
    tests: tuple[str, ...]


_KINDS = {"str": str, "int": int, "bool": bool, "tuple[str, ...]": list}


def load(path: Path = PATH) -> list[Entry]:
    """All entries in order. Raises BadManifest."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise BadManifest(f"{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("notebooks"), list):
        raise BadManifest(f"{path.name} needs a list called notebooks")
    return [_entry(place, values) for place, values in enumerate(content["notebooks"])]


def _entry(place: int, values: Any) -> Entry:
    if not isinstance(values, dict):
        raise BadManifest(f"entry {place} is not a mapping")
    where = values.get("name", f"entry {place}")
    wanted = {field.name: _KINDS[str(field.type)] for field in fields(Entry)}
    for name in [*wanted, *values]:
        if name not in values or name not in wanted:
            raise BadManifest(f"{where}: {'lacks' if name in wanted else 'does not know'} the field {name!r}")
    for name, kind in wanted.items():
        value = values[name]
        if type(value) is not kind or (kind is list and not all(isinstance(item, str) for item in value)):
            raise BadManifest(f"{where}: {name} is {value!r}, it must be a {kind.__name__}{' of str' * (kind is list)}")
    return Entry(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def problems(entries: list[Entry], folder: Path = SOURCES) -> list[str]:
    """Where the manifest disagrees with sources, checks and tests."""
    names = [entry.name for entry in entries]
    found = [] if names == sorted(set(names)) else ["the notebooks are not in reading order, or one is there twice"]
    stems = {path.stem for path in source_paths(folder=folder)}
    found += [f"{name}: it has a source but is not in course.yaml" for name in sorted(stems - set(names))]
    for entry in entries:
        if entry.name not in stems:
            found.append(f"{entry.name}: it has no source")
            continue
        found += [f"{entry.name}: {problem}" for problem in _of_entry(entry, folder)]
    return found


def _of_entry(entry: Entry, folder: Path) -> list[str]:
    found = []
    if not 0 < entry.minutes <= LONGEST_MINUTES:
        found.append(f"{entry.minutes} minutes; 1 to {LONGEST_MINUTES} are sensible")
    if not entry.title or not entry.objective.endswith("."):
        found.append("it needs a title, and an objective that is a sentence")
    try:
        used = exercise_ids(solved_copy(folder / f"{entry.name}.py"))
    except BadSource as error:
        return [*found, str(error)]
    if list(entry.exercises) != used:
        found.append(f"course.yaml lists the exercises {list(entry.exercises)}, the notebook has {used}")
    for id in used:
        if id[:2] != entry.name[:2] or find(id) is None:
            found.append(f"exercise {id} has no check in lab/course/exercises/nb{entry.name[:2]}.py")
    found += [f"the check {id} is used nowhere" for id in _checks_of(entry) if id not in used]
    return [*found, *(f"there is no test {test}" for test in entry.tests if not _exists(test))]


def _checks_of(entry: Entry) -> list[str]:
    try:
        return list(exercises(f"nb{entry.name[:2]}"))
    except ModuleNotFoundError:
        return []


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and (not name or f"def {name.rpartition('::')[2]}(" in path.read_text(encoding="utf-8"))
