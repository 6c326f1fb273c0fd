"""Half a minute that shows the machine works: the same chat prompts alone, in static batches, continuously."""

from __future__ import annotations

import argparse
import time

RUNS = {
    "one at a time": {"batching": "static:1", "attention": "packed"},
    "static batches of 4": {"batching": "static:4"},
    "continuous, up to 8": {"batching": "continuous:8"},
}


def table(requests: int = 8, model=None) -> tuple[str, bool]:
    """The table as text, and whether all tokens agree. All requests wait from the start; about half a minute."""
    from dataclasses import replace

    from lab.execution.model import load_model
    from lab.running import compare
    from lab.workload import chat_workload

    model = load_model() if model is None else model
    work = replace(chat_workload(requests, seed=1), rate=1e6)
    result = compare(work, model, RUNS)
    lines = [f"{'':22}{'tokens/s':>10}{'median TTFT':>14}   same tokens"]
    for name, report in result.reports.items():
        speed, ttft = f"{report.output_tokens_per_s:.1f}", f"{report.ttft_s.p50:.2f} s"
        lines.append(f"{name:22}{speed:>10}{ttft:>14}   {result.same[name]}")
    return "\n".join(lines), all(same.verdict != "no" for same in result.same.values())


def main(argv: list[str] | None = None) -> int:
    """Print the table; exit code 1 when tokens differ."""
    argparse.ArgumentParser(allow_abbrev=False, prog="python3 -m lab selfcheck", description=__doc__).parse_args(
        argv or []
    )
    began = time.perf_counter()
    print("self-check: 8 chat prompts through the real model, three ways (about half a minute)", flush=True)
    text, agree = table()
    print(text)
    print(_speed(), flush=True)
    verdict = "the tokens agree" if agree else "the tokens DIFFER: please report this with the output of doctor"
    print(f"{verdict}; {time.perf_counter() - began:.0f} s", flush=True)
    return 0 if agree else 1


def _speed() -> str:
    """A line on what this computer can do at best; measured once, in about three seconds, and kept."""
    from lab.peaks import measure_peaks, this_machine

    peaks = this_machine() or measure_peaks()
    return f"at best {peaks.flops / 1e9:.0f} GFLOP/s and {peaks.bytes_per_s / 1e9:.1f} GB/s, {peaks.source}"
