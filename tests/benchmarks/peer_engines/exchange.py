"""What the comparison tells an engine and what it hears back: two JSON files, read in every engine's own Python."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM_UP = 2  # requests that are run once before the clock starts


def common_workload(requests: int = 32, seed: int = 0) -> list[tuple[list[int], int]]:
    """(prompt token ids, output tokens) of chat-like lengths, all arriving at once; outputs are never cut short.

    Lengths are log-normal: prompts of 16 to 512 tokens (median about 100), answers of 8 to 160 (median about 40).
    """
    draw = random.Random(seed)
    made = []
    for _ in range(requests):
        prompt = min(512, max(16, int(draw.lognormvariate(4.6, 0.7))))
        output = min(160, max(8, int(draw.lognormvariate(3.7, 0.6))))
        made.append(([draw.randrange(100, 40000) for _ in range(prompt)], output))
    return made


def answer(run: Callable[[dict, list[tuple[list[int], int]]], list[list[int]]], extra: Callable | None = None) -> None:
    """Entry point of an engine's script: `script TASK.json ANSWER.json`.

    `run(task, requests)` computes all requests and returns their output tokens. It is called for a few requests
    first, then for all, timed. `extra()` adds entries to the answer.
    """
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    requests = [(list(prompt), count) for prompt, count in task["requests"]]
    run(task, requests[:WARM_UP])
    started = time.perf_counter()
    outputs = run(task, requests)
    seconds = time.perf_counter() - started
    outputs = [[int(token) for token in tokens] for tokens in outputs]
    found = {"seconds": seconds, "outputs": outputs, **(extra() if extra else {})}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # engines leave threads behind
