"""`lab.check("04.1", answer)`: does an answer behave as it should, and if not, where does it first fail?

The checks of notebook NN are in `lab/course/exercises/nbNN.py`; a file that is there is found.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from lab.course.comparing import same, shown
from lab.course.guard import Outcome, describe_error, guarded
from lab.course.results import CheckResult

_tries: Counter[str] = Counter()  # failed tries in this process, by exercise


class StepFailed(Exception):
    """A probe found something that is not as it should be."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise. `solution` and the values of `wrong` make answers: the right one, and some that must fail."""

    id: str
    title: str
    hints: tuple[str, ...]
    examine: Callable[[Any, Probe], None]
    solution: Callable[[], Any]
    wrong: dict[str, Callable[[], Any]]


def exercise(
    id: str,
    title: str,
    *,
    hints: tuple[str, ...],
    solution: Callable[[], Any],
    wrong: dict[str, Callable[[], Any]],
) -> Callable[[Callable[[Any, Probe], None]], Exercise]:
    """Turn `examine(answer, probe)` into the check of exercise `id`. Hints go from a nudge to nearly everything."""
    if not re.fullmatch(r"\d\d\.\d+", id):
        raise ValueError(f"exercise id {id!r} is not of the form 04.1")
    return lambda examine: Exercise(id, title, hints, examine, solution, wrong)


class Probe:
    """Handed to a check. Name a `step`, then state what must hold; the first thing that does not ends the check."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.hints: tuple[str, ...] = ()
        self.statements = 0

    def step(self, name: str, *hints: str) -> None:
        """Begin a step, named by what must hold in it. Its own hints are given before those of the exercise."""
        self.steps.append(name)
        self.hints = hints

    def equal(self, got: Any, want: Any, what: str) -> None:
        """`what` names the value, for example "blocks_for(16, 16)"."""
        self.true(same(got, want), f"{what} should be {shown(want)}, got {shown(got)}")

    def close(self, got: Any, want: float, what: str, within: float = 1e-6) -> None:
        """Like equal, for numbers that may be rounded: at most `within` away, relative."""
        self.true(same(got, want, within), f"{what} should be about {shown(want)}, got {shown(got)}")

    def true(self, holds: bool, otherwise: str) -> None:
        """`holds` must be True itself, not something that counts as true."""
        self.statements += 1
        if holds is not True:
            raise StepFailed(otherwise)

    def raises(self, kind: type[BaseException], call: Callable[[], Any], what: str) -> None:
        """`call()` must raise `kind`."""
        self.statements += 1
        try:
            got = call()
        except kind:
            return
        raise StepFailed(f"{what} should raise {kind.__name__}, got {shown(got)}")

    def function(self, answer: Any, name: str) -> None:
        """The answer must be something that can be called."""
        self.true(callable(answer), f"the answer should be the function {name} itself, got {shown(answer)}")


def check(id: str, answer: Any) -> CheckResult:
    """Check an answer to an exercise. Never raises; each failed try shows one hint more."""
    try:
        found = find(id)
    except Exception as error:  # a broken file of exercises is no reason to stop a learner's notebook
        return CheckResult(_text(id), "", "unknown", message=f"the exercises cannot be read: {describe_error(error)}")
    if found is None:
        return CheckResult(_text(id), "", "unknown", message=_no_such(_text(id)))
    if answer is ...:
        return CheckResult(found.id, found.title, "open")
    probe = Probe()
    return _result(found, probe, guarded(lambda: found.examine(answer, probe)))


def _result(found: Exercise, probe: Probe, outcome: Outcome) -> CheckResult:
    error = outcome.error
    if isinstance(error, NotImplementedError):
        return CheckResult(found.id, found.title, "open")
    if isinstance(error, KeyboardInterrupt):
        return CheckResult(found.id, found.title, "open", message="interrupted before it came to a verdict")
    if error is None and probe.statements:
        return CheckResult(found.id, found.title, "passed", steps=tuple(probe.steps))
    _tries[found.id] += 1
    hints = (*probe.hints, *found.hints)[: _tries[found.id]]
    return CheckResult(
        found.id,
        found.title,
        "failed",
        steps=tuple(probe.steps[:-1]),
        failing=probe.steps[-1] if probe.steps else "the answer can be used",
        message=_what_went_wrong(outcome),
        hints=hints,
        tries=_tries[found.id],
        printed=tuple(outcome.printed.splitlines()[-5:]),
    )


def _what_went_wrong(outcome: Outcome) -> str:
    if isinstance(outcome.error, StepFailed):
        return str(outcome.error)
    if outcome.ran_away:
        return "it did not come to an end: is there a loop that never stops?"
    if outcome.error is None:
        return "nothing was examined"
    return f"it raised {describe_error(outcome.error)}"


def find(id: Any) -> Exercise | None:
    """The exercise of that id, or None."""
    if not isinstance(id, str) or not re.fullmatch(r"\d\d\.\d+", id):
        return None
    try:
        return exercises(f"nb{id[:2]}").get(id)
    except ModuleNotFoundError:
        return None


def exercises(module: str) -> dict[str, Exercise]:
    """Every exercise of one file, by id. Raises ValueError when two share an id."""
    values = vars(import_module(f"lab.course.exercises.{module}")).values()
    found: dict[str, Exercise] = {}
    for value in values:
        if isinstance(value, Exercise) and found.setdefault(value.id, value) is not value:
            raise ValueError(f"two exercises of {module} have the id {value.id}")
    return found


def all_exercises() -> dict[str, Exercise]:
    """Every exercise of the course, in order."""
    home = import_module("lab.course.exercises")
    modules = sorted(info.name for info in iter_modules(home.__path__) if info.name.startswith("nb"))
    return {id: found for module in modules for id, found in exercises(module).items()}


def forget_tries() -> None:
    """Start counting again, so that hints start small."""
    _tries.clear()


@contextmanager
def when_done(id: str) -> Iterator[None]:
    """For a cell that needs the code of an exercise: while that is a stub, say so instead of failing."""
    try:
        yield
    except NotImplementedError:
        print(f"○ This cell comes alive once exercise {id} is done.")


def _text(id: Any) -> str:
    return id if isinstance(id, str) else shown(id)


def _no_such(id: str) -> str:
    try:
        known = list(all_exercises())
    except Exception as error:
        return f"the exercises cannot be read: {error}"
    near = difflib.get_close_matches(id, known, 1)
    others = f"There are {', '.join(known)}." if known else "None is known."
    return f"there is no exercise {id}. " + (f"Did you mean {near[0]}?" if near else others)
