"""`python3 -m lab clear-prompts`: measure for how many output tokens each chat prompt is clear-cut, and store it.

A token is clear-cut when the two largest logits are at least 0.01 apart: five times more than kernels that round
differently were ever seen to disagree by (`lab.running.LOGIT_TOLERANCE`). Built-in workloads never ask for more
tokens than that, so that their digests agree between batch shapes, attention backends and machines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from lab.setup.paths import ROOT

PROMPTS = ROOT / "data" / "prompts.json"
MARGIN = 0.01
MOST_TOKENS = 128
FEWEST_TOKENS = 16  # a prompt with fewer is dropped
ABOUT = (
    "Chat prompts written for this course: questions, small tasks, and passages to read. clear_tokens: how many "
    f"greedy output tokens of the default model (at most {MOST_TOKENS}, its end included) come before the first "
    f"whose two largest logits are less than {MARGIN} apart. Measured by `python3 -m lab clear-prompts`."
)


def main(argv: Sequence[str]) -> int:
    """Measure and rewrite the file; with --check only compare. Returns 1 when a stored count is too large."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python3 -m lab clear-prompts", description=ABOUT)
    parser.add_argument("--check", action="store_true", help="write nothing; name prompts whose count is too large")
    parser.add_argument("--file", type=Path, default=PROMPTS, help="the prompts (default: data/prompts.json)")
    options = parser.parse_args(list(argv))
    entries = json.loads(options.file.read_text(encoding="utf-8"))["prompts"]
    counts = measure([entry["text"] for entry in entries])
    if options.check:
        return _compare(entries, counts)
    kept = [
        {"text": entry["text"], "clear_tokens": count}
        for entry, count in zip(entries, counts, strict=True)
        if count >= FEWEST_TOKENS
    ]
    options.file.write_text(text_of(kept), encoding="utf-8")
    mean = sum(entry["clear_tokens"] for entry in kept) / max(1, len(kept))
    print(f"{len(kept)} of {len(entries)} prompts kept, {mean:.0f} clear tokens on average")
    return 0


def measure(texts: list[str]) -> list[int]:
    """Clear tokens of each prompt, from one run of all of them on the default model."""
    import lab
    from lab.workload import fixed_workload

    work = fixed_workload(texts, [MOST_TOKENS] * len(texts), ignore_eos=False)
    report = lab.run(work, lab.load_model(), batching="continuous:16", clock="virtual")
    return [clear_tokens(report.times[index].margins) for index in range(len(texts))]


def clear_tokens(margins: Sequence[float]) -> int:
    """Output tokens before the first whose margin is too small."""
    return sum(1 for _ in takewhile(lambda margin: margin >= MARGIN, margins))


def text_of(entries: list[dict[str, Any]]) -> str:
    """The file: JSON with one prompt per line."""
    lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f'{{\n "about": {json.dumps(ABOUT)},\n "prompts": [\n{lines}\n ]\n}}\n'


def _compare(entries: list[dict[str, Any]], counts: list[int]) -> int:
    wrong = 0
    for entry, count in zip(entries, counts, strict=True):
        if entry["clear_tokens"] > count:
            wrong += 1
            print(f"stored {entry['clear_tokens']}, measured {count}: {entry['text'][:70]}")
    print(f"{wrong} of {len(entries)} counts are too large")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
