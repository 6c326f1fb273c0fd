"""This engine against others on the same machine, model, prompts and lengths; a table of medians and ratios.

    python tests/benchmarks/peers.py [--rounds 5] [--peers transformers,vllm,openvino] [--quick] [--out FILE]

Every engine runs in a fresh process and, where it is not part of the project, in its own virtual environment under
data/peers/ (made on the first run). In each round all engines take their turn, forwards in odd rounds and backwards in
even ones, so that a slow minute of the machine hits all of them; ratios are taken within a round and judged by their
median. Loading and two warm-up requests are not timed. Tokens are compared with those of transformers.
`--quick` takes 8 requests. The kept result is data/results/peers.json: run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE / "peer_engines")]

from environments import ensure, openvino_model  # noqa: E402
from exchange import common_workload  # noqa: E402

from lab.running import LOGIT_TOLERANCE  # noqa: E402
from lab.setup.doctor import machine  # noqa: E402
from lab.setup.paths import ROOT, model_dir  # noqa: E402

AIMS = {"vllm": 1.4, "openvino": 1.0, "transformers": 3.0}  # ours divided by theirs, at least
PRODUCT_AIM = 1.25  # steps with many running, divided by their own matrix products, at most


def run_engine(name: str, task: dict, python: Path, environment: dict[str, str] | None = None) -> dict:
    """One engine's answer, from a fresh process with these variables more, and without ours for threads and memory.

    Raises SystemExit with the end of its output when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "task.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(task), encoding="utf-8")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "THP_", "PYTHON"))}
        clean |= environment or {}
        script = HERE / "peer_engines" / f"run_{name}.py"
        done = subprocess.run([python, script, asked, answered], capture_output=True, text=True, env=clean)
        if not answered.is_file():
            raise SystemExit(f"{name} failed (exit code {done.returncode}):\n{(done.stdout + done.stderr)[-3000:]}")
        return json.loads(answered.read_text(encoding="utf-8"))


def kept_machine() -> dict[str, str]:
    """What a kept result says about the computer."""
    facts = machine()
    kept = {name: facts[name].split(",")[0] for name in ("processor", "memory")}
    return kept | {"cores": facts["cores"], "python": platform.python_version()}


def compare_tokens(ours: dict, theirs: dict) -> str:
    """ "31 of 32 equal, 1 tie": a tie begins where our two best logits differ by less than the measured tolerance."""
    equal = ties = 0
    for mine, other, margins in zip(ours["outputs"], theirs["outputs"], ours["margins"], strict=True):
        first = next((i for i, pair in enumerate(zip(mine, other, strict=False)) if pair[0] != pair[1]), None)
        if first is None and len(mine) == len(other):
            equal += 1
        elif first is not None and margins[first] < LOGIT_TOLERANCE:
            ties += 1
    return f"{equal} of {len(ours['outputs'])} equal" + (f", {ties} tie(s)" if ties else "")


def measure(names: list[str], task: dict, rounds: int) -> tuple[dict[str, list[float]], dict[str, dict]]:
    """Output tokens/s of every engine in every round, and each one's last answer."""
    pythons = {name: ensure(name, Path(task["model"])) for name in names}
    tokens = sum(count for _, count in task["requests"])
    rates: dict[str, list[float]] = {name: [] for name in names}
    answers: dict[str, dict] = {}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            answers[name] = run_engine(name, task, pythons[name])
            rates[name].append(tokens / answers[name]["seconds"])
            print(f"round {turn + 1}  {name:13}{rates[name][-1]:8.1f} output tokens/s", flush=True)
    return rates, answers


def summary(rates: dict[str, list[float]], answers: dict[str, dict]) -> dict[str, dict]:
    """Per engine: rates, their median, the ratios ours/theirs round by round and their median, tokens, verdict."""
    table = {}
    for name, own in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(rates["ours"], own, strict=True)]
        table[name] = {
            "tokens_per_s": [round(rate, 2) for rate in own],
            "median": round(median(own), 2),
            "ours_divided_by_it": [round(ratio, 3) for ratio in ratios],
            "median_ratio": round(median(ratios), 3),
            "tokens_as_ours": compare_tokens(answers["ours"], answers[name]),
        }
        if name in AIMS:
            table[name] |= {"aim": AIMS[name], "reached": median(ratios) >= AIMS[name]}
    return table


def show(table: dict[str, dict], shares: dict) -> None:
    """Print the table, and steps against their matrix products."""
    print(f"\n{'engine':14}{'tokens/s':>9}  {'ours / it':>9}  {'aim':>5}  rounds of ours / it; tokens")
    for name, row in table.items():
        rounds = " ".join(f"{ratio:.2f}" for ratio in row["ours_divided_by_it"])
        aim = f"{row['aim']:5.1f}" if "aim" in row else "     "
        print(f"{name:14}{row['median']:9.1f}  {row['median_ratio']:9.2f}  {aim}  {rounds}; {row['tokens_as_ours']}")
    whole = shares["workload"]
    print(
        f"{whole['steps']} steps of the workload with {whole['running']} and more running: {whole['step_s']:.2f} s, "
        f"their matrix products alone {whole['products_s']:.2f} s: {whole['ratio']:.2f} (aim: at most {PRODUCT_AIM})"
    )
    for point in shares["decodes"]:
        print(
            f"decode step of {point['batch']}: {point['step_ms']:.1f} ms, its matrix products alone "
            f"{point['products_ms']:.1f} ms: {point['ratio']:.2f} (aim: at most {PRODUCT_AIM})"
        )


def main() -> int:
    """Run the comparison; returns 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=",".join(["transformers", "vllm", "openvino"]), help="comma-separated")
    parser.add_argument("--quick", action="store_true", help="8 requests instead of 32")
    parser.add_argument("--storage", choices=("fp32", "fp16"), default="fp32", help="of our weights (fp16: a lesson)")
    parser.add_argument("--out", type=Path, help="default: data/results/peers.json, for a whole comparison only")
    options = parser.parse_args()
    names = ["ours", *filter(None, options.peers.split(","))]
    unknown = set(names) - {"ours", *AIMS}
    if unknown or options.rounds < 1:
        parser.error(f"peers are {', '.join(AIMS)}, rounds at least 1; got {sorted(unknown)}, {options.rounds}")
    model = model_dir()
    task = {
        "model": str(model),
        "openvino_model": str(openvino_model(model)),
        "requests": common_workload(8 if options.quick else 32),
        "budget": 256,
        "running": 32,
        "storage": options.storage,
    }
    started = time.monotonic()
    rates, answers = measure(names, task, options.rounds)
    table, shares = summary(rates, answers), answers["ours"]["product_share"]
    show(table, shares)
    whole = options.rounds >= 5 and len(names) == 4 and not options.quick and options.storage == "fp32"
    target = options.out or (ROOT / "data" / "results" / "peers.json" if whole else None)
    if target:
        found = {
            "date": date.today().isoformat(),
            "machine": kept_machine(),
            "model": model.name,
            "workload": f"{len(task['requests'])} requests at once, budget 256, at most 32 running",
            "minutes": round((time.monotonic() - started) / 60, 1),
            "engines": table,
            "product_share": shares,
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"written to {target}")
    missed = [name for name, row in table.items() if not row.get("reached", True)]
    return 1 if missed or any(part["ratio"] > PRODUCT_AIM for part in (shares["workload"], *shares["decodes"])) else 0


if __name__ == "__main__":
    sys.exit(main())
