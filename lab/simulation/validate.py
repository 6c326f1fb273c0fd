"""How far is the simulated machine from the real one? Checked against this package's own engine on this computer.

    python -m lab.simulation.validate --json data/results/calibration_accuracy.json

Recorded plans are priced again, throughput is compared under closed load, TTFT and TPOT under open load (twins.py).
Real and simulated runs get the same token ids and lengths. Real machines are noisy: every case is run several times, in
turn with the others, and judged by the median; the calibration's spread, and how much the real runs differ among
themselves, are part of the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import Report
from lab.running import run
from lab.shared_prefixes import few_shot_workload
from lab.simulation.calibrate import Calibration, calibrate, shape_of
from lab.simulation.hardware import THIS_MACHINE
from lab.simulation.hardware import device as find_device
from lab.simulation.measuring import more_rounds
from lab.simulation.model import SimulatedModel
from lab.simulation.sweep import table
from lab.simulation.twins import STEP_TARGET, THROUGHPUT_TARGET, as_ids, closed, crowd, opened
from lab.workload import DATA, Workload, chat_workload

#: Name -> workload and options. Batches of 8; "chunked" cuts prompts into 64 tokens.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "static": ("chat", {"batching": "static:8"}),
    "dynamic": ("chat", {"batching": "dynamic:8:20ms"}),
    "continuous": ("chat", {"batching": "continuous:8", "chunking": "whole"}),
    "chunked": ("chat", {"batching": "continuous:8", "chunking": "budget:64"}),
    "few-shot": ("few-shot", {"batching": "continuous:8", "chunking": "budget:64"}),
    "few-shot, prefix cache": (
        "few-shot",
        {"batching": "continuous:8", "chunking": "budget:64", "prefix_cache": "radix"},
    ),
}
OPEN_CASES = ("static", "chunked")
RESULTS = DATA / "results" / "calibration_accuracy.json"
OPEN_LOAD = 0.6  # of the throughput measured under closed load


def validate(
    model: Any = None,
    *,
    requests: int = 24,
    calibration: Calibration | None = None,
    cases: Sequence[str] = tuple(CASES),
    open_cases: Sequence[str] = OPEN_CASES,
    runs: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run everything and return it, ready for JSON. Without `calibration` the one that is kept is used.

    Raises BadPolicy for an unknown case, and where this machine was never calibrated.
    """
    unknown = sorted({*cases, *open_cases} - set(CASES))
    if unknown or not cases:
        raise BadPolicy(f"validation of {', '.join(unknown) or 'nothing'}; there are {', '.join(CASES)}")
    if model is None:
        from lab.execution.model import load_model

        model = load_model()
    began = time.perf_counter()
    device = calibration.device if calibration else find_device(THIS_MACHINE)
    simulated = SimulatedModel(shape_of(model), device)
    works = {name: _work(CASES[name][0], requests, model) for name in cases}
    reals = _real_runs(model, works, runs, say)
    rows = [closed(work, reals[name], simulated, CASES[name][1], name) for name, work in works.items()]
    opens = []
    for row in (row for row in rows if row["case"] in open_cases):
        name = row["case"]
        work = works[name].at_rate(OPEN_LOAD * row["requests/s"])
        opens += opened(work, model, simulated, CASES[name][1], name, runs)
        say(f"{name}, {runs} open runs at {work.rate:.2f} requests/s")
    record = _record(model, simulated, calibration, rows, opens)
    record["calibration"]["drift"] = drift(model, calibration) if calibration else None
    return record | {"seconds": time.perf_counter() - began}


def stored() -> dict[str, Any]:
    """The result kept in the repository, as `validate` gave it on its date, on the machine it names."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def _real_runs(
    model: Any, works: dict[str, Workload], runs: int, say: Callable[[str], None]
) -> dict[str, list[Report]]:
    """Every case under closed load, `runs` times; the cases take turns."""
    for name, work in works.items():
        run(Workload("warm-up", work.specs[:2], rate=1e9), model, clock="virtual", **CASES[name][1])
    reals: dict[str, list[Report]] = {name: [] for name in works}
    for turn in range(runs):
        for name, work in works.items():
            reals[name].append(run(crowd(work), model, clock="virtual", **CASES[name][1]))
            say(f"closed run {turn + 1}, {name}: {reals[name][-1].output_tokens_per_s:.1f} output tokens/s")
    return reals


def drift(model: Any, calibration: Calibration) -> float:
    """How much longer some of the calibration's steps take now than then: median of the ratios, minus 1."""
    then = calibration.points[::4]
    now = [replace(point, seconds=[]) for point in then]
    more_rounds(model, now, budget=0.0, least=3)
    return median(new.time / old.time for new, old in zip(now, then, strict=True)) - 1


def _work(kind: str, requests: int, model: Any) -> Workload:
    """The requests of a case."""
    make = {"chat": chat_workload, "few-shot": few_shot_workload}[kind]
    return as_ids(make(requests, seed=0), model)


def _record(
    model: Any, simulated: SimulatedModel, calibration: Calibration | None, rows: list[dict], opens: list[dict]
) -> dict[str, Any]:
    """The result as it is kept."""
    device = simulated.device
    kept: dict[str, Any] = {"notes": device.notes}
    if calibration:
        kept |= {"spread": calibration.spread, "errors": calibration.errors, "doubt": calibration.doubt}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": device.title,
        "model": model.name,
        "sources": list(device.sources),
        "calibration": kept,
        "targets": {"median per step": STEP_TARGET, "throughput": THROUGHPUT_TARGET, "open": "inside the real runs"},
        "closed": rows,
        "open": opens,
        "open load": OPEN_LOAD,
        "within": sum(row["within"] for row in [*rows, *opens]),
        "of": len(rows) + len(opens),
    }


def summary(record: dict[str, Any]) -> str:
    """The tables for people."""
    lines = [
        f"{record['model']} on {record['machine']}, {record['date']}",
        "",
        "closed load: replayed plans, throughput",
    ]
    lines.append(table([_closed_cells(row) for row in record["closed"]]))
    if record["open"]:
        lines += ["", f"open load, {record['open load']:g} × the throughput above: means over the requests"]
        lines.append(table([_open_cells(row) for row in record["open"]]))
        lines += [f"{row['case']}, {row['measure']}: {row['reason']}" for row in record["open"] if row["reason"]]
    lines += ["", f"within the targets: {record['within']} of {record['of']}"]
    doubt, moved = record["calibration"].get("doubt"), record["calibration"]["drift"]
    if moved is not None:
        lines.append(f"after all runs the steps of the calibration took {_percent(moved, '+')} longer than before them")
    return "\n".join(lines + ([f"not to be trusted: {doubt}"] if doubt else []))


def _percent(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f} %"


def _closed_cells(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": row["case"],
        "steps": row["steps"],
        "simulated": row["steps simulated"],
        "median error": _percent(row["median"]),
        "p90": _percent(row["p90"]),
        "sum": _percent(row["total"], "+"),
        "tokens/s, real runs": " ".join(f"{rate:.1f}" for rate in row["tokens/s of the runs"]),
        "simulated ": f"{row['tokens/s simulated']:.1f}",
        "error": _percent(row["throughput error"], "+"),
        "within": "yes" if row["within"] else "no",
    }


def _open_cells(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": row["case"],
        "measure": row["measure"],
        "real runs (s)": " ".join(f"{value:.4f}" for value in row["real"]),
        "simulated (s)": f"{row['simulated']:.4f}",
        "outside by": _percent(row["outside by"], "+"),
        "within": "yes" if row["within"] else "no",
    }


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m lab.simulation.validate")
    parser.add_argument("--requests", type=int, default=24, help="per run (default 24)")
    parser.add_argument("--runs", type=int, default=3, help="real runs of each case (default 3)")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be repeated")
    parser.add_argument("--no-open", action="store_true", help="leave out the runs under open load")
    parser.add_argument("--kept", action="store_true", help="use the calibration that is kept, do not measure anew")
    parser.add_argument("--seconds", type=float, default=40.0, help="of calibration (default 40)")
    parser.add_argument("--json", type=Path, help="keep the result there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 0 where everything lies within its target."""
    options = _options(argv)
    from lab.execution.model import load_model

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    model = load_model()
    calibration = None if options.kept else calibrate(model, seconds=options.seconds, say=say)
    cases = tuple(options.case or CASES)
    opens = () if options.no_open else tuple(name for name in OPEN_CASES if name in cases)
    sizes = {"requests": options.requests, "runs": options.runs}
    record = validate(model, calibration=calibration, cases=cases, open_cases=opens, say=say, **sizes)
    print(summary(record))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if record["within"] == record["of"] else 1


if __name__ == "__main__":
    sys.exit(main())
