"""`python3 -m lab clear-dialogues`: for how many output tokens each prompt of data/dialogues.json is clear-cut.

As `clear-prompts` does for chat prompts: a token is clear-cut when the two largest logits are at least 0.01 apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.course.clear_prompts import clear_tokens
from lab.shared_prefixes import DIALOGUES, LONGEST, SHORTEST, entries

#: Answers are measured a little further than any workload asks for.
MOST_TOKENS = 2 * LONGEST


def main(argv: Sequence[str]) -> int:
    """Measure and rewrite the file; with --check only compare. Returns 1 where a count is too large or below 4."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python3 -m lab clear-dialogues", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; name prompts whose count is too large")
    parser.add_argument("--answers", action="store_true", help="print every answer")
    parser.add_argument("--file", type=Path, default=DIALOGUES, help="default: data/dialogues.json")
    options = parser.parse_args(list(argv))
    dialogues = json.loads(options.file.read_text(encoding="utf-8"))
    problems = 0
    measured = measure(dialogues)
    for (kind, _, messages, entry), (count, length, answer) in zip(entries(dialogues), measured, strict=True):
        stored = entry.get("clear_tokens", count)
        unclear = count < min(SHORTEST, length)
        if unclear or (options.check and stored > count):
            problems += 1
            print(f"{kind}: {count} clear tokens (stored {stored}): {messages[-1].content[-60:]!r}")
        if options.answers:
            print(f"{kind} [{count}] {messages[-1].content[-60:]!r} -> {answer!r}")
        entry["clear_tokens"] = count
    if not options.check:
        options.file.write_text(json.dumps(dialogues, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{problems} prompts are not clear enough")
    return 1 if problems else 0


def measure(dialogues: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Clear tokens, tokens and text of every answer, from one run of all prompts on the default model."""
    import lab
    from lab.workload import fixed_workload

    model = lab.load_model()
    messages = [messages for _, _, messages, _ in entries(dialogues)]
    work = fixed_workload(messages, [MOST_TOKENS] * len(messages), ignore_eos=False)
    report = lab.run(work, model, batching="continuous:16", clock="virtual")
    times = [report.times[index] for index in range(len(messages))]
    return [(clear_tokens(each.margins), len(each.output), model.decode(each.output)) for each in times]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
