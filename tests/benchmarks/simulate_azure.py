"""How long does an hour of real traffic take to simulate? A table, no assertion.

    python tests/benchmarks/simulate_azure.py [--limit 2000] [--single] [--profile] [--json FILE]

The Azure conversation trace of 2023 (19,366 requests, about 4.1 million output tokens) on a simulated Llama-3-8B on one
H100, chunked continuous batching. The aim is 20 s on one core and less than 1 GB. `--single` prices every step by
itself, without advancing stretches at once; `--profile` says in which modules the time goes (and makes it slower).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lab import traces  # noqa: E402
from lab.running import run  # noqa: E402
from lab.simulation.model import simulated  # noqa: E402

TRACE = ROOT.parent / "shared" / "data" / "traces" / "AzureLLMInferenceTrace_conv_2023.csv"
OTHER_PLACE = ROOT / "data" / "traces" / "AzureLLMInferenceTrace_conv_2023.csv"  # where `fetch-data` puts it
AIM_S, AIM_GB = 20, 1.0


class SingleSteps:
    """A simulated model whose runners do not take plans that repeat."""

    def __init__(self, model: Any):
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def runner(self, *args: Any, **options: Any) -> Any:
        """The model's runner without `stretches`."""
        runner = self._model.runner(*args, **options)
        return _Single(runner)


class _Single:
    def __init__(self, runner: Any):
        self.run, self.costs = runner.run, runner.costs


def peak_gb() -> float | None:
    """Most memory this process has had, in GB; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


def by_module(profile: cProfile.Profile) -> list[tuple[str, float]]:
    """Seconds spent in each module itself, the largest first; what is written in C counts for its caller's module."""
    spent: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():
        if file in ("~", "") and callers:
            for (caller, _, _), (_, _, share, _) in callers.items():
                spent[_module(caller)] += share
        else:
            spent[_module(file)] += own
    return spent.most_common(12)


def _module(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def measure(work: Any, options: argparse.Namespace) -> tuple[dict[str, Any], cProfile.Profile | None]:
    """Simulate, and say what it took."""
    model = simulated(options.model, on=options.on)
    model = SingleSteps(model) if options.single else model
    profile = cProfile.Profile() if options.profile else None
    began, cpu = time.perf_counter(), time.process_time()
    with profile or nullcontext():
        report = run(work, model, batching=options.batching, chunking=options.chunking)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    row = {
        "requests": len(work),
        "finished": report.finished,
        "output_tokens": report.output_tokens,
        "simulated_s": report.duration_s,
        "steps": report.steps,
        "plans": sum(1 for _ in report.trace.entries()),
        "preemptions": report.preemptions,
        "ttft_p50_s": report.ttft_s.p50,
        "tpot_p50_s": report.tpot_s.p50,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "us_per_step": 1e6 * seconds / max(1, report.steps),
        "peak_gb": peak_gb(),
    }
    return row, profile


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE if TRACE.exists() else OTHER_PLACE)
    parser.add_argument("--limit", type=int, help="only the first requests")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--on", default="h100-sxm")
    parser.add_argument("--batching", default="continuous:256")
    parser.add_argument("--chunking", default="budget:512")
    parser.add_argument("--single", action="store_true", help="price every step by itself")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    work = traces.load(options.trace, limit=options.limit)
    print(f"read {len(work):,} requests in {time.perf_counter() - began:.1f} s")
    row, profile = measure(work, options)
    for name, value in row.items():
        print(f"{name:16}{value:>16,.4g}" if isinstance(value, float) else f"{name:16}{value!s:>16}")
    print(f"aim for the whole trace: {AIM_S} s on one core, less than {AIM_GB:g} GB")
    if profile:
        found = by_module(profile)
        print("\nown seconds by module (profiled: slower than without)")
        for module, seconds in found:
            print(f"  {module:36}{seconds:8.2f}")
        row["modules"] = dict(found)
    if options.json:
        options.json.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
