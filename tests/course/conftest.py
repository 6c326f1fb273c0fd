"""Exercises of the tests' own, so that no test depends on what the course asks."""

import pytest

from lab.course import checks
from lab.course.checks import exercise


@exercise(
    "98.2",
    "Blocks for a request",
    hints=("A block that is partly filled is still one block.", "Divide and round up."),
    solution=lambda: lambda tokens, size: -(-tokens // size),
    wrong={
        "rounded down": lambda: lambda tokens, size: tokens // size,
        "always one more": lambda: lambda tokens, size: tokens // size + 1,
        "rounded to the nearest": lambda: lambda tokens, size: round(tokens / size),
    },
)
def blocks(answer, probe):
    probe.function(answer, "blocks_for")
    probe.step("one token needs a block")
    probe.equal(answer(1, 16), 1, "blocks_for(1, 16)")
    probe.step("a full block is one block", "How many blocks hold exactly 16 tokens?")
    probe.equal(answer(16, 16), 1, "blocks_for(16, 16)")
    probe.step("one token more needs another")
    probe.equal(answer(17, 16), 2, "blocks_for(17, 16)")


@pytest.fixture(autouse=True)
def fresh_tries():
    checks.forget_tries()


@pytest.fixture
def use(monkeypatch):
    """Let `check` find the exercise given to it, under whatever id."""
    return lambda found: monkeypatch.setattr(checks, "find", lambda id: found)


@pytest.fixture
def blocks_exercise(use):
    """Exercise 98.2 takes the place of every other."""
    use(blocks)
    return blocks
