"""This project's engine: continuous batching, 256 tokens a step, at most 32 running."""

from __future__ import annotations

import json
import sys
import time
from functools import lru_cache
from itertools import count as count_up
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from exchange import answer  # noqa: E402

import lab  # noqa: E402  first, since it chooses how torch's threads wait
from lab.clock import Driver, WallClock  # noqa: E402
from lab.execution.curve import products_of_step  # noqa: E402
from lab.execution.runner import ModelRunner  # noqa: E402
from lab.request import Request, SamplingParams  # noqa: E402

BLOCKS = 1024
MANY = 16
margins: list[list[float]] = []
ids = count_up()


@lru_cache(maxsize=1)
def model(folder: str, storage: str):
    return lab.load_model(folder, storage=storage)


@lru_cache(maxsize=1)
def engine(folder: str, storage: str, running: int, budget: int):
    """Made in the warm-up, as every engine here makes its own."""
    policies = {"batching": lab.Continuous(running), "chunking": lab.TokenBudget(budget)}
    return lab.build_engine(model(folder, storage), blocks=BLOCKS, **policies)


def run(task, requests):
    made = [Request(next(ids), prompt, SamplingParams(max_tokens=count, ignore_eos=True)) for prompt, count in requests]
    Driver(engine(task["model"], task["storage"], task["running"], task["budget"]), made, WallClock()).run()
    margins[:] = [list(request.margins) for request in made]
    return [request.output for request in made]


def extra():
    """Margins of all tokens, and how much of a step is matrix products, in decodes and in the whole workload."""
    from lab.execution.curve import product_share

    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    mine = model(task["model"], task["storage"])
    kept = list(margins)
    points = [point._asdict() for point in product_share(mine)]
    return {"margins": kept, "product_share": {"decodes": points, "workload": workload_share(task, mine)}}


def workload_share(task, mine):
    """Seconds of the steps with MANY and more running, of the matrix products of such steps, and their ratio.

    The products of a step are timed right after it, so that both meet the machine in the same mood.
    """
    steps, products, run_plan = [], [], ModelRunner.run

    def timed(self, plan):
        result = run_plan(self, plan)
        if len(plan.rows) >= MANY:
            work = products_of_step(mine, plan.num_tokens, sum(row.samples for row in plan.rows))
            started = time.perf_counter()
            work()
            products.append(time.perf_counter() - started)
            steps.append(result.seconds)
        return result

    ModelRunner.run = timed
    try:
        run(task, [(list(prompt), count) for prompt, count in task["requests"]])
    finally:
        ModelRunner.run = run_plan
    found = {"running": MANY, "steps": len(steps), "step_s": sum(steps), "products_s": sum(products)}
    return found | {"ratio": sum(steps) / sum(products)}


if __name__ == "__main__":
    answer(run, extra)
