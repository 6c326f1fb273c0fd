"""How long does one scheduling step take, and does it grow? A benchmark, not a test: `python tests/benchmarks/…`.

64 requests run and 1,000 wait. "full": nobody can join. "one joins": in every step one request finishes and another
takes its place. "after": as "one joins", when many requests have finished. The aim is 150 µs for orders with static
keys. Medians of single steps, the best of several rounds, because other processes disturb.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.axes import describe, parse
from lab.engine import Engine
from lab.request import Request, SamplingParams
from lab.running import build_engine
from lab.scheduler import Scheduler
from lab.simulation.priced import Priced

RUNNING, WAITING = 64, 1000
AIM_US = 150


class ResponseRatio:
    """An order whose keys move with time, as response-ratio orders have them."""

    name = "moving keys (a response ratio)"
    static = False

    def key(self, request: Request, now: float) -> float:
        """Length over age."""
        return request.num_prompt / (1 + now - request.arrival_time)


ORDERS = ["fcfs", "shortest-prompt", "shortest-remaining", "earliest-deadline", "hybrid", "aged:shortest-prompt:5s"]


class Bench:
    """One engine kept at 64 running and 1,000 waiting; `steps` times its scheduler."""

    def __init__(self, ordering: object, turnover: bool, chunking: str = "budget:512"):
        self.turnover, self.draw, self.now, self.next_id = turnover, random.Random(0), 0.0, 0
        self.engine: Engine = build_engine(
            Priced(), blocks=RUNNING * 40, batching=f"continuous:{RUNNING}", chunking=chunking, ordering=ordering
        )
        for index in range(RUNNING):
            self.submit(index + 2 if turnover else 500)
        while sum(request.remaining == 1 for request in self.engine.scheduler.running) < RUNNING:
            self.now = self.engine.step(self.now).end
            if turnover:
                self.fill()
        self.fill()

    def submit(self, outputs: int) -> None:
        """One more request, with a prompt of 8 to 40 tokens and a deadline."""
        arrival = self.now
        self.engine.submit(
            Request(
                self.next_id,
                None,
                SamplingParams(max_tokens=outputs),
                arrival,
                deadline=arrival + self.draw.uniform(1, 9),
                num_prompt=self.draw.randint(8, 40),
            )
        )
        self.next_id += 1

    def fill(self) -> None:
        """Keep 1,000 waiting."""
        engine = self.engine
        missing = WAITING + RUNNING - len(engine.scheduler.waiting) - len(engine.scheduler.running)
        for _ in range(missing):
            self.submit(RUNNING if self.turnover else 500)

    def steps(self, count: int) -> list[float]:
        """Seconds that `schedule` took in each of `count` steps."""
        took: list[float] = []
        schedule = Scheduler.schedule

        def timed(scheduler: Scheduler, now: float, more_expected: bool):
            start = time.perf_counter()
            result = schedule(scheduler, now, more_expected)
            took.append(time.perf_counter() - start)
            return result

        Scheduler.schedule = timed
        try:
            for _ in range(count):
                self.now = self.engine.step(self.now).end
                if self.turnover:
                    self.fill()
        finally:
            Scheduler.schedule = schedule
        return took

    def microseconds(self, count: int, rounds: int) -> float:
        """Best median."""
        return 1e6 * min(statistics.median(self.steps(count)) for _ in range(rounds))


def measure(
    ordering: object, count: int, rounds: int, finished: int, chunking: str = "budget:512"
) -> tuple[float, ...]:
    """Microseconds: full, one joins, one joins after `finished` requests have finished."""
    full = Bench(ordering, turnover=False, chunking=chunking).microseconds(count, rounds)
    bench = Bench(ordering, turnover=True, chunking=chunking)
    joins = bench.microseconds(count, rounds)
    while len(bench.engine.requests) - WAITING - RUNNING < finished:
        bench.steps(200)
    return full, joins, bench.microseconds(count, rounds)


def main() -> int:
    """Print one line per order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--finished", type=int, default=5000, help="finished requests before the last column")
    options = parser.parse_args()
    cases = [(parse("ordering", order), "budget:512") for order in ORDERS]
    cases += [(ResponseRatio(), "budget:512"), (parse("ordering", "fcfs"), "slack:100ms")]
    print(f"µs per scheduling step, {RUNNING} running, {WAITING:,} waiting (aim for static keys: {AIM_US})")
    print(f"{'order':34} {'chunking':10} {'full':>7} {'one joins':>10} {f'after {options.finished:,}':>12}")
    for ordering, chunking in cases:
        times = measure(ordering, options.steps, options.rounds, options.finished, chunking)
        name = ordering.name if isinstance(ordering, ResponseRatio) else describe(ordering)
        print(f"{name:34} {chunking.split(':')[0]:10} {times[0]:7.0f} {times[1]:10.0f} {times[2]:12.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
