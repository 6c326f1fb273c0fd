"""`python3 -m lab synthetic`: small traces of our own that match the published statistics of the real ones.

Nothing is taken from the real files but the numbers in PUBLISHED. Lengths are the values of a smooth quantile
curve through the published percentiles, bent until the mean is right as well; arrivals and shared prefixes are
made by the smallest process that has the published irregularity. Seeds are fixed, and chosen so that the counts
per window (IDC), which a short trace gets only by luck, come out near.

    azure-code-like     bursts: many short gaps and a few very long ones, shuffled
    azure-conv-like     Poisson arrivals whose rate drifts slowly
    mooncake-like       arrivals in batches every three seconds; conversations that grow, so that prompts share
    sharegpt-like       lengths only
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from lab import traces
from lab.traces.formats import AZURE_HEADER, LENGTHS_HEADER
from lab.traces.generate import batches, bursts, conversations, drifting, spread
from lab.traces.statistics import TraceStatistics
from lab.workload import DATA

FOLDER = DATA / "synthetic"
LIMIT = 60_000  # bytes per file

#: mean, p50, p95, p99 of prompt and answer in tokens, and what is published about arrivals and shared prefixes.
PUBLISHED: dict[str, dict[str, float]] = {
    "azure-code-like": {
        **{"prompt mean": 2048, "prompt p50": 1469, "prompt p95": 7303, "prompt p99": 7436},
        **{"output mean": 28, "output p50": 13, "output p95": 90, "output p99": 251},
        **{"requests/s": 2.57, "IAT CV": 13.2, "IDC 1 s": 13.2, "IDC 10 s": 71},
    },
    "azure-conv-like": {
        **{"prompt mean": 1155, "prompt p50": 1020, "prompt p95": 4083, "prompt p99": 4142},
        **{"output mean": 211, "output p50": 129, "output p95": 451, "output p99": 601},
        **{"requests/s": 5.53, "IAT CV": 1.09, "IDC 1 s": 1.4, "IDC 10 s": 4.0},
    },
    "mooncake-like": {
        **{"prompt mean": 12035, "prompt p50": 6909, "prompt p95": 39550, "prompt p99": 85400},
        **{"output mean": 343, "output p50": 350, "output p95": 698, "output p99": 1119},
        **{"requests/s": 3.40, "IAT CV": 3.03, "IDC 1 s": 7.9, "IDC 10 s": 2.1},
        **{"block hits": 0.366, "token hits": 0.374},
    },
    "sharegpt-like": {
        **{"prompt mean": 2340, "prompt p50": 1730, "prompt p95": 6563, "prompt p99": 7433},
        **{"output mean": 439, "output p50": 415, "output p95": 920, "output p99": 998},
    },
}
ORIGINS = {
    "azure-code-like": "Azure LLM inference trace 2023, code (Splitwise, ISCA'24)",
    "azure-conv-like": "Azure LLM inference trace 2023, conversation (Splitwise, ISCA'24)",
    "mooncake-like": "Mooncake conversation trace (FAST'25)",
    "sharegpt-like": "ShareGPT lengths up to 8,192 tokens (Sarathi-Serve, OSDI'24)",
}


def azure_code_like() -> str:
    draw, wanted, count = random.Random(8), PUBLISHED["azure-code-like"], 1501
    times = bursts(count, wanted["requests/s"], wanted["IAT CV"], 0.0073, draw)
    return _azure(times, *_lengths(count, wanted, (16, 7450), (2, 1200), draw))


def azure_conv_like() -> str:
    draw, wanted, count = random.Random(55), PUBLISHED["azure-conv-like"], 1501
    times = drifting(count, wanted["requests/s"], wanted["IAT CV"], 38, draw)
    return _azure(times, *_lengths(count, wanted, (8, 6000), (16, 1000), draw))


def mooncake_like() -> str:
    draw, wanted, count = random.Random(20), PUBLISHED["mooncake-like"], 301
    times = batches(count, wanted["requests/s"], 30, draw)
    prompts, outputs = _lengths(count, wanted, (900, 120_000), (2, 2000), draw)
    keys = conversations(prompts, times, 0.72, draw)
    rows = zip(times, prompts, outputs, keys, strict=True)
    return "".join(
        json.dumps(
            {"timestamp": round(1000 * time), "input_length": prompt, "output_length": output, "hash_ids": ids},
            separators=(",", ":"),
        )
        + "\n"
        for time, prompt, output, ids in rows
    )


def sharegpt_like() -> str:
    draw, wanted = random.Random(1), PUBLISHED["sharegpt-like"]
    prompts, outputs = _lengths(2401, wanted, (4, 8100), (4, 1024), draw)
    _limit_totals(prompts, outputs, 8192, draw)
    rows = zip(prompts, outputs, strict=True)
    header = f"{LENGTHS_HEADER},num_total_tokens,pd_ratio\n"
    return header + "".join(f"{p},{o},{p + o},{p / o:.2f}\n" for p, o in rows)


SAMPLES: dict[str, tuple[str, Callable[[], str]]] = {
    "azure-code-like": ("azure-code-like.csv", azure_code_like),
    "azure-conv-like": ("azure-conv-like.csv", azure_conv_like),
    "mooncake-like": ("mooncake-like.jsonl", mooncake_like),
    "sharegpt-like": ("sharegpt-like.csv", sharegpt_like),
}


def _lengths(
    count: int,
    wanted: dict[str, float],
    prompt_ends: tuple[int, int],
    output_ends: tuple[int, int],
    draw: random.Random,
) -> tuple[list[int], list[int]]:
    """Prompt and answer lengths, shuffled apart: nothing is published about how they go together."""
    made = []
    for part, (low, high) in (("prompt", prompt_ends), ("output", output_ends)):
        knots = [low, *(wanted[f"{part} {name}"] for name in ("p50", "p95", "p99")), high]
        made.append(spread(count, knots, wanted[f"{part} mean"]))
        draw.shuffle(made[-1])
    return made[0], made[1]


def _limit_totals(prompts: list[int], outputs: list[int], limit: int, draw: random.Random) -> None:
    """Swap answers until no prompt and answer exceed `limit` together."""
    for index in range(len(prompts)):
        while prompts[index] + outputs[index] > limit:
            other = draw.randrange(len(prompts))
            if prompts[index] + outputs[other] <= limit and prompts[other] + outputs[index] <= limit:
                outputs[index], outputs[other] = outputs[other], outputs[index]


def _azure(times: list[float], prompts: list[int], outputs: list[int]) -> str:
    """As the originals: CRLF, seven digits, no line end after the last row."""
    start = datetime(2026, 1, 1)
    rows = [AZURE_HEADER]
    for time, prompt, output in zip(times, prompts, outputs, strict=True):
        stamp = start + timedelta(microseconds=round(time * 1_000_000))
        rows.append(f"{stamp:%Y-%m-%d %H:%M:%S}.{stamp.microsecond:06d}0,{prompt},{output}")
    return "\r\n".join(rows)


def measured(name: str, folder: Path = FOLDER) -> dict[str, float]:
    """The statistics of PUBLISHED, of our file."""
    found = TraceStatistics.of(traces.load(folder / SAMPLES[name][0]))
    values = {
        f"{part} {point}": getattr(getattr(found, part), point)
        for part in ("prompt", "output")
        for point in ("mean", "p50", "p95", "p99")
    }
    values |= {"requests/s": found.requests_per_s, "IAT CV": found.iat_cv}
    values |= {"IDC 1 s": found.idc_1s, "IDC 10 s": found.idc_10s}
    if found.hits is not None:
        values |= {"block hits": found.hits.of_blocks, "token hits": found.hits.of_tokens}
    return {key: values[key] for key in PUBLISHED[name]}


def table(folder: Path = FOLDER) -> str:
    """Published, ours and the miss in percent, as Markdown."""
    blocks = []
    for name, (file, _) in SAMPLES.items():
        work = traces.load(folder / file)
        blocks.append(f"\n## {file}\n\nAfter: {ORIGINS[name]}. {len(work)} requests.\n")
        blocks.append("| statistic | published | ours | miss |\n|---|---:|---:|---:|")
        for statistic, ours in measured(name, folder).items():
            published = PUBLISHED[name][statistic]
            blocks.append(f"| {statistic} | {published:g} | {ours:.5g} | {100 * (ours / published - 1):+.1f} % |")
    return "\n".join(blocks) + "\n"


ABOUT = """# Synthetic traces

Made by `python3 -m lab synthetic`, which also wrote this page. No row comes from a real trace; the generator knows
only the published statistics below. Lengths are in tokens. IAT: time between arrivals; CV: standard deviation over
mean; IDC: variance over mean of the counts per window; hits: share found in an unlimited prefix cache of 512-token
blocks, the partly filled last block of a prompt included.

What these files do not have: any relation between the length of a prompt and of its answer, times of day, and
anything else that no number below describes. Use them to learn and to test; use the originals
(`python3 -m lab fetch-data`) to make claims.
"""


def write(folder: Path = FOLDER) -> None:
    """Make every file and the page that compares them with what is published."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, make in SAMPLES.values():
        (folder / file).write_bytes(make().encode())
    (folder / "README.md").write_bytes((ABOUT + table(folder)).encode())


def main(argv: list[str]) -> int:
    """Write the files and print the table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python3 -m lab synthetic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write (default: data/synthetic)")
    options = parser.parse_args(argv)
    write(options.folder)
    print(table(options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
