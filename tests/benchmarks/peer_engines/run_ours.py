"""This project's engine: continuous batching, 256 tokens a step, at most 32 running."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from exchange import answer  # noqa: E402

import lab  # noqa: E402  first, since it chooses how torch's threads wait
from lab.clock import Driver, WallClock  # noqa: E402
from lab.request import Request, SamplingParams  # noqa: E402

BLOCKS = 1024
margins: list[list[float]] = []


@lru_cache(maxsize=1)
def model(folder: str, storage: str):
    return lab.load_model(folder, storage=storage)


def run(task, requests):
    made = [
        Request(index, prompt, SamplingParams(max_tokens=count, ignore_eos=True))
        for index, (prompt, count) in enumerate(requests)
    ]
    engine = lab.build_engine(
        model(task["model"], task["storage"]),
        blocks=BLOCKS,
        batching=lab.Continuous(task["running"]),
        chunking=lab.TokenBudget(task["budget"]),
    )
    Driver(engine, made, WallClock()).run()
    margins[:] = [list(request.margins) for request in made]
    return [request.output for request in made]


def extra():
    """Margins of all tokens, and how much of a decode step is matrix products."""
    from lab.execution.curve import product_share

    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    points = product_share(model(task["model"], task["storage"]))
    return {"margins": margins, "product_share": [point._asdict() for point in points]}


if __name__ == "__main__":
    answer(run, extra)
