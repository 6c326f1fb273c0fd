"""`python3 -m lab simulate`: the engine and the policies of `run`, with steps priced on a GPU one need not have.

    python3 -m lab simulate --model llama-3-8b --on h100-sxm --trace FILE --batching continuous:64
    python3 -m lab simulate --model llama-3-70b --on h100-sxm --tp 4 --requests 400 --slo ttft=1,tpot=0.05 --capacity

An axis option that is given several times is swept: one row per combination, on all cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.cli import _announce, _axis_values, _check_writable, _parser, _slo, combinations
from lab.errors import BadPolicy, BadWorkload
from lab.shared_prefixes import WORKLOADS
from lab.workload import Workload

COLUMNS = (
    "output_tokens_per_s requests_per_s ttft_p50_s ttft_p95_s tpot_p50_s itl_p95_s goodput_rps mean_batch preemptions"
)


def main(argv: list[str]) -> int:
    """Print a table, labelled as simulated; 0 when at least one request was served."""
    options = _options(argv)
    _check_writable(options.json, options.steps)
    _check_together(options)
    work, model = workload(options), _model(options)
    common = _common(options)
    runs = combinations(_axis_values(options))
    _announce(work, model)
    if len(runs) > 1:
        return _sweep(work, model, runs, common, options)
    axes = next(iter(runs.values()))
    return (_capacity if options.capacity else _run)(work, model, common | axes, options)


def _options(argv: list[str]) -> argparse.Namespace:
    about = "Price the steps of a run on a device that need not be here."
    like_run = _parser("simulate", about, repeat=True)  # some of whose options get another meaning
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog=like_run.prog,
        description=about,
        parents=[like_run],
        conflict_handler="resolve",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="whose steps (default llama-3-8b; on this-machine smollm2-135m)"
    )
    parser.add_argument("--load", type=float, metavar="X", help="arrivals as a multiple of the device's capacity")
    parser.add_argument(
        "--on", "--device", default="h100-sxm", metavar="DEVICE", help="on which device (default h100-sxm)"
    )
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallelism: devices share each layer")
    parser.add_argument("--pp", type=int, default=1, metavar="N", help="pipeline parallelism: devices share the layers")
    parser.add_argument("--dtype", help="bf16, fp16 or fp32 (default: the device's usual one)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="requests of an Azure, Mooncake or lengths file")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N requests of the trace")
    parser.add_argument("--steps", type=Path, metavar="FILE", help="write every step as JSONL")
    parser.add_argument("--capacity", action="store_true", help="search the highest rate that meets --slo")
    parser.add_argument("--attainment", type=float, metavar="SHARE", help="share of requests that must (default 0.9)")
    parser.set_defaults(requests=None, workload=None, seed=None, temperature=None)
    return parser.parse_args(argv)


def _check_together(options: argparse.Namespace) -> None:
    """No option may be given that another one leaves without meaning."""
    if options.rate is not None and options.load is not None:
        raise BadWorkload(f"give rate ({options.rate}) or load ({options.load}), not both")
    brought = _given(options, "workload", "requests", "seed", "temperature")
    if options.trace is not None and brought:
        raise BadWorkload(f"--trace with {brought}: a trace brings its requests; --limit N takes the first")
    if options.trace is None and options.limit is not None:
        raise BadWorkload(f"--limit {options.limit} is for a --trace; built-in workloads have --requests")
    if not options.capacity and options.attainment is not None:
        raise BadPolicy(f"--attainment {options.attainment} is for --capacity")
    paces = _given(options, "rate", "load")
    if options.capacity and paces:
        raise BadPolicy(f"--capacity with {paces}: the rate is what is searched; leave {paces} out")
    if options.capacity and options.steps:
        raise BadPolicy("--capacity with --steps: it makes many runs, and --steps is for one")


def _given(options: argparse.Namespace, *names: str) -> str:
    """Those options that were given, as they are written."""
    return " and ".join(f"--{name}" for name in names if getattr(options, name) is not None)


def workload(options: argparse.Namespace) -> Workload:
    """The trace, at its own pace unless a rate or a load is given, or a built-in workload."""
    if options.trace is None:
        make = WORKLOADS[options.workload or "chat"]
        number = 24 if options.requests is None else options.requests
        seed, temperature = options.seed or 0, options.temperature or 0.0
        return make(number, options.rate, seed, options.load, options.max_tokens, temperature)
    from lab import traces

    work = traces.load(options.trace, limit=options.limit)
    if options.max_tokens is not None:
        specs = (replace(spec, sampling=replace(spec.sampling, max_tokens=options.max_tokens)) for spec in work.specs)
        work = replace(work, specs=tuple(specs))
    if len(work) > 1 and len({spec.arrival for spec in work.specs}) == 1 and (pace := _given(options, "rate", "load")):
        raise BadWorkload(f"all {len(work)} requests of {work.name} arrive at once: {pace} would change nothing")
    if options.rate is not None:
        return work.at_rate(options.rate)
    return work.at_load(options.load) if options.load is not None else work


def _model(options: argparse.Namespace) -> Any:
    from lab.simulation.model import simulated

    name = options.model or ("smollm2-135m" if options.on == "this-machine" else "llama-3-8b")
    return simulated(name, on=options.on, tp=options.tp, pp=options.pp, dtype=options.dtype)


def _common(options: argparse.Namespace) -> dict[str, Any]:
    """Options of `lab.run` that were given."""
    names = ("clock", "blocks", "block_size", "host_blocks")
    common = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    common |= {"check": True} if options.check else {}
    slo = _slo(options.slo)
    if options.capacity and not slo:
        raise BadPolicy("--capacity needs --slo, for example --slo ttft=1,tpot=0.05")
    common |= {"attainment": options.attainment} if options.attainment is not None else {}
    return common | ({"slo": slo} if slo else {})


def _run(work: Workload, model: Any, settings: dict[str, Any], options: argparse.Namespace) -> int:
    from lab.running import run
    from lab.simulation.progress import Line, Watched

    line = Line()
    try:
        report = run(work, Watched(model, len(work), line), **settings)
    finally:
        line.clear()
    print(report.summary())
    if options.steps:
        report.trace.write(options.steps)
    if options.json:
        report.to_json(options.json)
    return 0 if report.finished else 1


def _capacity(work: Workload, model: Any, settings: dict[str, Any], options: argparse.Namespace) -> int:
    from lab.simulation.capacity import capacity
    from lab.simulation.progress import Line

    line = Line(every=0.0)
    try:
        found = capacity(work, model, watch=line.show, **settings)
    finally:
        line.clear()
    print(found.summary())
    _write(options.json, found.to_dict() | {"model": model.name})
    return 0


def _sweep(
    work: Workload,
    model: Any,
    runs: dict[str, dict[str, str]],
    common: dict[str, Any],
    options: argparse.Namespace,
) -> int:
    from lab.simulation.sweep import sweep, table

    if options.steps:
        raise BadPolicy(f"--steps with {len(runs)} combinations of axis values: it is for one")
    values = _axis_values(options)
    find = "capacity" if options.capacity else "report"
    rows = sweep(work, model, values, find=find, **common)
    differing = [axis for axis, specs in values.items() if len(specs) > 1]
    measures = [name for name in COLUMNS.split() if name in rows[0]]
    if options.capacity:
        measures = [name for name in rows[0] if name not in values and name != "error"]
    print(table(rows, differing + measures))
    print("times: simulated")
    _write(options.json, {"model": model.name, "rows": rows})
    return 0 if all(row["error"] is None for row in rows) else 1


def _write(path: Path | None, record: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
