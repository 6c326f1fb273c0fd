"""``python3 -m lab test``: every stage in turn, its time beside its budget, and one count of everything.

The last line reads ``N passed, N failed, N skipped``. A stage that goes wrong fails the whole, but the later
ones still run. A stage over its budget is marked and fails nothing: time depends on the machine.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from lab.setup import commands
from lab.setup.console import say
from lab.setup.paths import ROOT
from lab.setup.stages import STAGES, Stage


@dataclass(slots=True)
class Outcome:
    """What one stage did. `failed` counts failures, errors, and a run that broke off."""

    stage: Stage
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def main(argv: Sequence[str]) -> int:
    options = commands.parse_own("test", argv)
    wanted = [s for s in STAGES if options.stage in (None, s.name)]
    outcomes = []
    for stage in wanted:
        if stage.absent() and stage.optional and options.stage is None:
            continue
        say(f"\n== {stage.name} (budget {stage.budget_s} s)")
        outcomes.append(run_stage(stage, options.pytest_args))
    for line in summary(outcomes):
        say(line)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def run_stage(stage: Stage, extra: Sequence[str] = ()) -> Outcome:
    """Run one stage to its end and count what happened."""
    started = time.monotonic()
    outcome = Outcome(stage)
    if reason := stage.absent():
        outcome.skipped, outcome.reasons[reason] = 1, 1
        say(f"skipped: {reason}")
    elif stage.commands:
        for command in stage.commands:
            ok = _call(command, stage) == 0
            outcome.passed, outcome.failed = outcome.passed + ok, outcome.failed + (not ok)
            if not ok:
                outcome.problems.append(" ".join(command[1:]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "results.xml"
            code = _call(stage.pytest_command(junit, extra), stage)
            count(junit, code, outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def _call(command: Sequence[str], stage: Stage) -> int:
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", **stage.env}
    return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL).returncode


def count(junit: Path, code: int, outcome: Outcome) -> None:
    """Add the results file of a pytest run that ended with `code` to the outcome."""
    cases = _cases(junit)
    for case in cases:
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
            outcome.problems.append(name)
        elif (skip := case.find("skipped")) is not None:
            outcome.skipped += 1
            outcome.reasons[_reason(skip)] += 1
        else:
            outcome.passed += 1
    if code and not outcome.failed:
        outcome.failed = 1
        outcome.problems.append("no tests were found" if code == 5 else f"pytest broke off (exit code {code})")


def _cases(junit: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def _reason(skip: ElementTree.Element) -> str:
    text = (skip.get("message") or "no reason given").splitlines()[0][:150]
    return f"known fault: {text}" if skip.get("type") == "pytest.xfail" else text


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """The table of stages, the skips with their reasons, the failures, and the counting line, last."""
    lines = ["", "Stage         passed  failed  skipped    seconds   budget"]
    for out in outcomes:
        over = "  OVER" if out.seconds > out.stage.budget_s else ""
        lines.append(
            f"{out.stage.name:<12}{out.passed:>8}{out.failed:>8}{out.skipped:>9}"
            f"{out.seconds:>11.1f}{out.stage.budget_s:>9}{over}"
        )
    lines += [
        f"skipped in {out.stage.name}: {number} x {reason}"
        for out in outcomes
        for reason, number in out.reasons.most_common()
    ]
    lines += [f"FAILED in {out.stage.name}: {name}" for out in outcomes for name in out.problems]
    total = (sum(getattr(out, name) for out in outcomes) for name in ("passed", "failed", "skipped"))
    return [*lines, "{} passed, {} failed, {} skipped".format(*total)]
