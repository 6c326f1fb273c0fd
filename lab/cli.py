"""`python3 -m lab run | compare | selfcheck | …`: the library's calls as commands. Axis options are specs."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import BadPolicy, LabError
from lab.metrics import SLO_NAMES
from lab.shared_prefixes import WORKLOADS

AXES = ("batching", "chunking", "ordering", "preemption", "prefix-cache", "memory", "attention", "delivery", "lanes")
_HELP = {
    "batching": "static:8, dynamic:8:2ms, dynamic:8:pid, continuous:16, …",
    "chunking": "whole, budget:256, slack, …",
    "ordering": "fcfs, shortest-prompt, earliest-deadline, longest-prefix, aged:ORDER:5s, …",
    "preemption": "recompute or swap, with a victim: swap:most-blocks, …",
    "prefix-cache": "none, hash or radix",
    "memory": "paged, reserved:max, reserved:pow2 or reserved:oracle",
    "attention": "packed or padded (default: what the batching policy uses)",
    "delivery": "token or batch (default: what the batching policy uses)",
    "lanes": "steps in flight at once: one (default), split:N, phases or phases:F",
}


class Command(NamedTuple):
    """One command: a line of help, and what runs it with the arguments after its name."""

    help: str
    run: Callable[[list[str]], int]


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code. Errors a user can cause end in one sentence, not a traceback."""
    if not argv or argv[0] not in COMMANDS:
        print(f"unknown command {argv[0] if argv else ''!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return COMMANDS[argv[0]].run(argv[1:])
    except LabError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    except OSError as error:
        print(f"{argv[0]}: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _module(name: str) -> Callable[[list[str]], int]:
    return lambda argv: import_module(name).main(argv)


def _parser(command: str, about: str, repeat: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog=f"python3 -m lab {command}", description=about)
    parser.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        help="a model's name, tiny, a checkpoint folder, or OWNER/NAME on the Hugging Face Hub",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:N, or auto: a GPU if there is one")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: float32 on the CPU, else the shorter)")
    parser.add_argument("--workload", default="chat", choices=list(WORKLOADS), help="what is asked (default chat)")
    parser.add_argument("--requests", type=int, default=24, metavar="N", help="how many requests (default 24)")
    parser.add_argument("--rate", type=float, metavar="R", help="arrivals per second (default 4)")
    parser.add_argument("--load", type=float, metavar="X", help="arrivals as a multiple of this machine's capacity")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, metavar="N", help="the same output limit for every request")
    parser.add_argument("--temperature", type=float, default=0.0)
    for axis in AXES:
        parser.add_argument(f"--{axis}", action="append" if repeat else "store", metavar="SPEC", help=_HELP[axis])
    parser.add_argument("--blocks", type=int, metavar="N", help="blocks in the key-value pool")
    parser.add_argument("--host-blocks", type=int, metavar="N", help="blocks of host memory for swapping")
    parser.add_argument("--block-size", type=int, metavar="N", help="tokens per block (default 16)")
    parser.add_argument("--slo", metavar="ttft=1,tpot=0.2", help="latency limits in seconds, for goodput")
    parser.add_argument("--clock", choices=("wall", "virtual"), help="wait for arrivals, or jump to them")
    parser.add_argument("--check", action="store_true", help="recount every block after every step")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    return parser


def _slo(text: str | None) -> dict[str, float]:
    limits = {}
    for part in (text or "").split(",") if text else []:
        name, _, value = part.partition("=")
        if name.strip() in limits:
            raise BadPolicy(f"--slo {text!r}: {name.strip()} is given twice")
        try:
            limits[name.strip()] = float(value)
        except ValueError:
            raise BadPolicy(f"--slo {part!r}: write {' or '.join(SLO_NAMES)}=SECONDS, joined by commas") from None
    return limits


def _check_writable(*paths: Path | None) -> None:
    """Say before a long run that its result could not be kept."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise BadPolicy(f"{path} cannot be written: " + ("it is a folder" if path.is_dir() else "no such folder"))


def _setting(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Workload, model and the options both commands share."""
    from lab.execution.model import load_model

    work = WORKLOADS[options.workload](
        options.requests, options.rate, options.seed, options.load, options.max_tokens, options.temperature
    )
    common = {
        "slo": _slo(options.slo),
        "clock": options.clock,
        "check": options.check,
        "blocks": options.blocks,
        "block_size": options.block_size,
        "host_blocks": options.host_blocks,
    }
    return work, load_model(options.model, options.device, options.dtype), common


def _announce(work: Any, model: Any, runs: int = 1) -> None:
    """What is about to happen, before the wait."""
    times = "" if runs == 1 else f", once under each of {runs} settings, after a short warm-up of each"
    print(f"{model.name}: {len(work):,} requests of {work.name}{times}", flush=True)


def run_command(argv: list[str]) -> int:
    """One workload, one value per axis."""
    parser = _parser("run", "Run chat requests through the engine and print a report.", repeat=False)
    steps = dict(type=Path, metavar="FILE", help="write every step as JSONL (in `simulate`, --trace reads requests)")
    parser.add_argument("--steps", "--trace", dest="trace", **steps)
    parser.add_argument("--chrome-trace", type=Path, metavar="FILE", help="write a trace that ui.perfetto.dev opens")
    options = parser.parse_args(argv)
    _check_writable(options.json, options.trace, options.chrome_trace)
    work, model, common = _setting(options)
    from lab.running import run

    _announce(work, model)
    report = run(work, model, **common, **_axis_values(options))
    print(report.summary())
    if options.trace:
        report.trace.write(options.trace)
    if options.chrome_trace:
        from lab.export import chrome_trace, notes

        number = chrome_trace(report, options.chrome_trace)
        print(f"{number} trace events in {options.chrome_trace}: open it in ui.perfetto.dev")
        for note in notes(report):
            print(note)
    if options.json:
        report.to_json(options.json)
    return 0 if report.finished else 1


def _axis_values(options: argparse.Namespace) -> dict[str, Any]:
    given = {axis.replace("-", "_"): getattr(options, axis.replace("-", "_")) for axis in AXES}
    return {axis: value for axis, value in given.items() if value is not None}


def compare_command(argv: list[str]) -> int:
    """The product of all axis values given, over the same requests."""
    parser = _parser("compare", "Run the same requests under every combination of the axis values given.", repeat=True)
    options = parser.parse_args(argv)
    _check_writable(options.json)
    runs = combinations(_axis_values(options))
    work, model, common = _setting(options)
    from lab.running import compare

    _announce(work, model, len(runs))
    comparison = compare(work, model, runs, **common)
    print(comparison.summary())
    if options.json:
        options.json.write_text(json.dumps(comparison.to_dict(), indent=2) + "\n", encoding="utf-8")
    differ = any(same.verdict == "no" for same in comparison.same.values())
    nothing = any(report.requests and not report.finished for report in comparison.reports.values())
    return 1 if differ or nothing else 0


def combinations(values: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """Every combination; a run is named by the values in which the runs differ."""
    differing = [axis for axis, specs in values.items() if len(specs) > 1]
    runs = {}
    for specs in itertools.product(*values.values()):
        options = dict(zip(values, specs, strict=True))
        name = " ".join(options[axis] for axis in differing) or " ".join(specs) or "default"
        if name in runs:
            raise BadPolicy(f"{name} is given twice")
        runs[name] = options
    return runs


COMMANDS = {
    "run": Command("run one workload and report", run_command),
    "compare": Command("run one workload under several policies", compare_command),
    "simulate": Command("the same on a device you do not have, priced", _module("lab.simulate_command")),
    "calibrate": Command("measure this machine, so that it can be simulated", _module("lab.simulation.calibrate")),
    "placement": Command("split prompts over devices (the 42 % example)", _module("lab.cluster.placement")),
    "selfcheck": Command("the half-minute comparison of the first start", _module("lab.selfcheck")),
    "fetch-data": Command("download the public traces from their owners", _module("lab.fetch_data")),
    "synthetic": Command("make the small synthetic traces anew", _module("lab.synthetic")),
    "notebooks": Command("build, execute or check the notebooks", _module("lab.course.generate")),
    "clear-prompts": Command(
        "measure how long the chat prompts' answers are clear-cut", _module("lab.course.clear_prompts")
    ),
}
