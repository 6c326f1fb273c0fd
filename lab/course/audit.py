"""Does a check tell right from wrong? Its solution must pass; its wrong answers, and these, must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.course.checks import Exercise, check, forget_tries

FEWEST_WRONG = 3
FEWEST_HINTS = 2


class _EqualsEverything:
    """Agrees with whoever asks, whatever is done to it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return True

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __ge__ = __lt__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(())


class _Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def _stub(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("exercise: your turn")


def _broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(_Unshowable())


def _leaves(*args: Any, **kwargs: Any) -> Any:
    raise SystemExit(3)


def _deep(*args: Any, **kwargs: Any) -> Any:
    return _deep(*args, **kwargs)


def _endless(*args: Any, **kwargs: Any) -> Any:
    while True:
        pass


#: Answers that fit no exercise.
NONSENSE: dict[str, Any] = {
    "...": ...,
    "None": None,
    "True": True,
    "zero": 0,
    "a number": 42,
    "not a number": float("nan"),
    "a text": "yes",
    "an empty list": [],
    "an object": object(),
    "equal to everything": _EqualsEverything(),
    "without a repr": _Unshowable(),
    "a stub": _stub,
    "returns None": lambda *args, **kwargs: None,
    "returns zero": lambda *args, **kwargs: 0,
    "returns True": lambda *args, **kwargs: True,
    "returns its first argument": lambda *args, **kwargs: args[0] if args else None,
    "raises": _broken,
    "leaves": _leaves,
    "recurses for ever": _deep,
    "never ends": _endless,
    "a class": object,
}


def audit(exercise: Exercise) -> list[str]:
    """Everything that is wrong with a check; empty for a good one."""
    problems = []
    if len(exercise.wrong) < FEWEST_WRONG:
        problems.append(f"{exercise.id}: {len(exercise.wrong)} wrong answers, at least {FEWEST_WRONG} are wanted")
    if len(exercise.hints) < FEWEST_HINTS:
        problems.append(f"{exercise.id}: {len(exercise.hints)} hints, at least {FEWEST_HINTS} are wanted")
    right = check(exercise.id, exercise.solution())
    if not right.passed:
        problems.append(f"{exercise.id}: its solution does not pass\n{right!r}")
    answers: dict[str, Callable[[], Any]] = {name: lambda value=value: value for name, value in NONSENSE.items()}
    for name, make in (answers | exercise.wrong).items():
        result = check(exercise.id, make())
        if result.status not in ("failed", "open"):
            problems.append(f"{exercise.id}: the wrong answer {name!r} is {result.status}")
        repr(result), result._repr_html_()
    forget_tries()
    return problems
