"""How threads wait, in output tokens/s of the comparison's workload: on an idle machine, and beside a busy process.

    python tests/benchmarks/threads.py [--rounds 3] [--quick] [--out FILE]

Each way runs in a fresh process, for the choice is made before torch is imported; all take turns in every round. A busy
process is a Python loop: what a browser or a second notebook is to an engine that wants every core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from statistics import median

from peers import ROOT, common_workload, kept_machine, model_dir, run_engine

from lab.setup.measure import busy_process

#: Name -> variables. The first is what the project does.
WAYS = {
    "own threads": {},
    "oneDNN, passive OpenMP": {"LAB_LINEAR": "onednn", "OMP_WAIT_POLICY": "passive"},
    "oneDNN, active OpenMP": {"LAB_LINEAR": "onednn", "OMP_WAIT_POLICY": "active"},
}


def measure(task: dict, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Output tokens/s by situation and way, one number per round."""
    tokens = sum(count for _, count in task["requests"])
    rates = {situation: {way: [] for way in WAYS} for situation in ("idle", "beside a busy process")}
    for turn in range(rounds):
        for situation, own in rates.items():
            for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                with nullcontext() if situation == "idle" else busy_process():
                    answer = run_engine("ours", task, Path(sys.executable), WAYS[way])
                own[way].append(round(tokens / answer["seconds"], 1))
                print(f"round {turn + 1}  {situation:22}{way:24}{own[way][-1]:8.1f} output tokens/s", flush=True)
    return rates


def main() -> int:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="8 requests instead of 32, and nothing is kept")
    parser.add_argument("--out", type=Path, help="default: data/results/threads.json")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"rounds at least 1; got {options.rounds}")
    started = time.monotonic()
    requests = common_workload(8 if options.quick else 32)
    task = {"model": str(model_dir()), "requests": requests, "budget": 256, "running": 32, "storage": "fp32"}
    rates = measure(task, options.rounds)
    print(f"\n{'output tokens/s, median':24}" + "".join(f"{situation:>24}" for situation in rates))
    for way in WAYS:
        print(f"{way:24}" + "".join(f"{median(own[way]):24.1f}" for own in rates.values()))
    target = options.out or (None if options.quick else ROOT / "data" / "results" / "threads.json")
    if target:
        found = {
            "date": date.today().isoformat(),
            "machine": kept_machine(),
            "workload": f"{len(requests)} requests at once, budget 256, at most 32 running",
            "minutes": round((time.monotonic() - started) / 60, 1),
            "output_tokens_per_s": rates,
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
