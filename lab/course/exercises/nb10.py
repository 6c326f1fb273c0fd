"""Checks of notebook 10: weights read per token, time together, lanes for a traffic, lanes of one's own, wrong claims.

Written together with notebooks/instructor/source/10_continuous_scheduling.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from lab.course.checks import Probe, exercise
from lab.course.several_lanes import CLAIMS, WISHES, mixed, run_lanes, wish
from lab.experiments.streams import weights_per_token
from lab.metrics import Report
from lab.request import Request
from lab.running import run
from lab.simulation.model import simulated
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload

PRICES = {"step": 0.040, "token": 0.002}
Flights = Sequence[tuple[float, float]]


def read_per_token(trace: RunTrace, weight_bytes: float) -> float:
    """A solution of 10.1."""
    tokens = sum(row.sampled for step in trace for row in step.rows)
    return len(trace) * weight_bytes / tokens


def _once_per_request(trace: RunTrace, weight_bytes: float) -> float:
    rows = sum(len(step.rows) for step in trace)
    return rows * weight_bytes / sum(row.sampled for step in trace for row in step.rows)


def _per_computed(trace: RunTrace, weight_bytes: float) -> float:
    return len(trace) * weight_bytes / sum(row.num_tokens for step in trace for row in step.rows)


def _sampling_steps(trace: RunTrace, weight_bytes: float) -> float:
    counts = [sum(row.sampled for row in step.rows) for step in trace]
    return sum(count > 0 for count in counts) * weight_bytes / sum(counts)


def _once_per_run(trace: RunTrace, weight_bytes: float) -> float:
    return weight_bytes / sum(row.sampled for step in trace for row in step.rows)


@cache
def _trace(lanes: str, chunking: str = "budget:64") -> Report:
    work = mixed(12, 6.0, (10, 150), (4, 20), seed=4)
    return run(work, Priced(**PRICES), batching="continuous:8", chunking=chunking, lanes=lanes)


@exercise(
    "10.1",
    "Bytes of weights read per output token",
    hints=(
        "Every step reads all weights once, whether it computes one token or hundreds, and whether it yields any.",
        "Divide by the output tokens: rows with row.sampled, over all steps.",
        "len(trace) * weight_bytes / sum(row.sampled for step in trace for row in step.rows)",
    ),
    solution=lambda: read_per_token,
    wrong={
        "read once per request in a step": lambda: _once_per_request,
        "per computed token": lambda: _per_computed,
        "only steps that yield a token": lambda: _sampling_steps,
        "read once per run": lambda: _once_per_run,
    },
)
def bytes_read(answer: Any, probe: Probe) -> None:
    """answer(trace, weight_bytes) -> bytes per output token."""
    probe.step("it is a function")
    probe.function(answer, "read_per_token")
    probe.step("one request alone: a step per token reads all weights for that token")
    alone = run(fixed_workload([5], [10]), Priced()).trace
    probe.close(answer(alone, 600.0), 600.0, "read_per_token(one request, 600.0)")
    for lanes in ("one", "split:2", "phases"):
        probe.step(f"prompts in chunks, lanes {lanes!r}: as lab.experiments.streams counts")
        report = _trace(lanes)
        probe.close(answer(report.trace, 1e9), weights_per_token(report, 1e9), f"read_per_token of {lanes!r}, 1e9")


def time_together(flights: Flights) -> float:
    """A solution of 10.2."""
    edges = sorted([(start, 1) for start, _ in flights] + [(end, -1) for _, end in flights])
    total = last = 0.0
    count = 0
    for time, change in edges:
        if count > 1:
            total += time - last
        count, last = count + change, time
    return total


def _pairs(flights: Flights) -> float:
    items = list(flights)
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for place, a in enumerate(items) for b in items[place + 1 :])


def _neighbours(flights: Flights) -> float:
    return float(sum(max(0.0, a[1] - b[0]) for a, b in pairwise(sorted(flights))))


def _sum_less_span(flights: Flights) -> float:
    if not flights:
        return 0.0
    span = max(end for _, end in flights) - min(start for start, _ in flights)
    return max(0.0, sum(end - start for start, end in flights) - span)


def _any_in_flight(flights: Flights) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(flights):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


@exercise(
    "10.2",
    "Time with two in flight",
    hints=(
        "Turn every flight into two events, a start (+1) and an end (−1), and sort them by time.",
        "Walk through the events with a counter; a stretch between two events counts while the counter is above 1.",
        "edges = sorted([(start, 1) for start, _ in flights] + [(end, -1) for _, end in flights])",
    ),
    solution=lambda: time_together,
    wrong={
        "every pair counted for itself": lambda: _pairs,
        "only neighbours": lambda: _neighbours,
        "the sum of all, less the whole span": lambda: _sum_less_span,
        "time with any in flight": lambda: _any_in_flight,
    },
)
def together(answer: Any, probe: Probe) -> None:
    """answer(flights) -> seconds in which at least two flights were in the air; flights are (start, end) pairs."""
    cases = {
        "nothing in flight": [],
        "one after the other": [(0.0, 2.0), (2.0, 3.0)],
        "two that overlap for a second": [(0.0, 2.0), (1.0, 3.0)],
        "a pause counts for nothing": [(0.0, 2.0), (1.0, 3.0), (7.0, 8.0)],
        "three at once are not counted twice": [(0.0, 4.0), (1.0, 3.0), (2.0, 5.0)],
        "a long one beside many short ones": [(0.0, 9.0), (1.0, 2.0), (3.0, 4.0), (5.0, 7.0)],
        "in any order": [(5.0, 7.0), (0.0, 9.0), (3.0, 4.0)],
    }
    probe.step("it is a function")
    probe.function(answer, "time_together")
    for name, flights in cases.items():
        probe.step(name)
        probe.close(answer(list(flights)), time_together(flights), f"time_together({flights})")


@cache
def _granted(mix: str, lanes: str) -> tuple[bool, str]:
    return wish(mix, lanes, simulated("llama-3-8b", on="h100-sxm"))


@exercise(
    "10.3",
    "Lanes for three kinds of traffic",
    hints=(
        "Which traffic is short of what? Documents: arithmetic, in bursts. Chat: nothing much. A crowd: both in turn.",
        "Chat and the crowd need no fraction. For documents, a larger F gives shorter gaps and later first tokens.",
        "One of the three wants one lane, one wants split:2, and one phases:F with F between 0.3 and 0.45.",
    ),
    solution=lambda: {"documents": "phases:0.35", "chat": "one", "crowd": "split:2"},
    wrong={
        "one lane for all": lambda: dict.fromkeys(WISHES, "one"),
        "two lanes for all": lambda: dict.fromkeys(WISHES, "split:2"),
        "phases for all": lambda: dict.fromkeys(WISHES, "phases:0.35"),
        "too much for the decodes": lambda: {"documents": "phases:0.6", "chat": "one", "crowd": "split:2"},
        "too little for the decodes": lambda: {"documents": "phases", "chat": "one", "crowd": "split:2"},
        "one is missing": lambda: {"documents": "phases:0.35", "chat": "one"},
        "no such lanes": lambda: {"documents": "phases:2", "chat": "one", "crowd": "split:2"},
    },
)
def lanes_for(answer: Any, probe: Probe) -> None:
    """answer maps each mix of WISHES to lanes."""
    probe.step(f"it is a dict with lanes for {', '.join(WISHES)}")
    whole = isinstance(answer, dict) and set(answer) == set(WISHES)
    probe.true(whole and all(type(lanes) is str for lanes in answer.values()), f"got {answer!r}")
    for mix, wanted in WISHES.items():
        probe.step(f"{mix}: {wanted}")
        granted, got = _granted(mix, answer[mix])
        probe.true(granted, f"{mix} with {answer[mix]!r}: {got}; wanted: {wanted}")


class Seats:
    """A solution of 10.4."""

    fraction = 1.0

    def __init__(self, name: str, seats: int, homes: dict[int, str]):
        self.name, self.seats, self.homes = name, seats, homes

    def takes(self, request: Request) -> bool:
        """True for requests at home here."""
        return self.homes.get(request.id) == self.name

    def slots(self, slots: int, running: Sequence[Request]) -> int:
        """Free seats of this lane, at most as many as are offered."""
        return max(0, min(slots, self.seats - sum(self.takes(request) for request in running)))

    def admitted(self, request: Request) -> None:
        """It lives here from now on."""
        self.homes[request.id] = self.name


def _bad(name: str, method: Callable[..., Any]) -> type[Seats]:
    """Seats with one method replaced."""
    return type("Seats", (Seats,), {name: method})


def _free(lane: Seats, running: Sequence[Request]) -> int:
    return lane.seats - sum(lane.takes(request) for request in running)


@exercise(
    "10.4",
    "A lane with seats of its own",
    hints=(
        "`homes` is shared: admitted() writes self.name under request.id, takes() reads it.",
        "slots(): the seats less the `running` requests that live here; at most as many as offered, and at least 0.",
        "max(0, min(slots, self.seats - sum(self.takes(request) for request in running)))",
    ),
    solution=lambda: Seats,
    wrong={
        "takes everybody": lambda: _bad("takes", lambda self, request: True),
        "as many as are offered": lambda: _bad("slots", lambda self, slots, running: slots),
        "never full": lambda: _bad("slots", lambda self, slots, running: min(slots, self.seats)),
        "counts all lanes": lambda: _bad("slots", lambda self, n, running: max(0, min(n, self.seats - len(running)))),
        "more than are offered": lambda: _bad("slots", lambda self, slots, running: max(0, _free(self, running))),
        "below 0": lambda: _bad("slots", lambda self, slots, running: min(slots, _free(self, running))),
        "forgets whom it admitted": lambda: _bad("admitted", lambda self, request: None),
    },
)
def own_lane(answer: Any, probe: Probe) -> None:
    """answer(name, seats, homes) -> a Lane."""
    probe.step("it is the class")
    probe.function(answer, "Seats")
    homes: dict[int, str] = {}
    express, rest = answer("express", 2, homes), answer("rest", 6, homes)
    requests = [Request(id, None, num_prompt=5) for id in range(5)]
    probe.step("before anybody is admitted, a lane takes nobody")
    probe.equal(express.takes(requests[0]), False, "express.takes(a new request)")
    probe.step("whom a lane has admitted, it takes; the other does not")
    express.admitted(requests[0])
    rest.admitted(requests[1])
    taken = [[lane.takes(request) for request in requests[:3]] for lane in (express, rest)]
    probe.equal(taken, [[True, False, False], [False, True, False]], "takes() of express and rest for three requests")
    probe.step("free seats, at most as many as are offered, never below 0")
    probe.equal(answer("a", 3, {}).slots(8, []), 3, "slots(8, nobody) of 3 seats")
    probe.equal(answer("a", 3, {}).slots(1, []), 1, "slots(1, nobody) of 3 seats")
    probe.equal(express.slots(8, requests[:3]), 1, "slots(8, one of this lane and two others) of 2 seats")
    full = answer("full", 1, {3: "full", 4: "full"})
    probe.equal(full.slots(8, requests[3:]), 0, "slots(8, two of this lane) of 1 seat")
    _in_an_engine(answer, probe)


def _in_an_engine(answer: Any, probe: Probe) -> None:
    """Everybody ends, no lane is overfull, nobody changes lanes, and the tokens are those of one batch."""
    probe.step("in an engine: everybody is computed to the end, and no lane holds more than its seats")
    work = mixed(20, 40.0, (5, 60), (4, 20), seed=7)
    homes: dict[int, str] = {}
    lanes = [answer("express", 2, homes), answer("rest", 6, homes)]
    report = run_lanes(work, Priced(**PRICES), lanes, batching="continuous:8")
    probe.equal(report.finished, len(work), "finished requests")
    seats = {"express": 2, "rest": 6}
    for step in report.trace:
        at_home = {homes.get(row.request) for row in step.rows}
        probe.true(len(at_home) == 1, f"step {step.index} holds requests of several lanes: {at_home}")
        most = seats[at_home.pop()]
        probe.true(
            len(step.rows) <= most, f"step {step.index} has {len(step.rows)} requests, and the lane {most} seats"
        )
    probe.step("same tokens as in one batch")
    probe.equal(_tokens(answer), _tokens(None), "the digest of all output tokens")


def _tokens(lane: Any) -> str | None:
    """The tokens of a small real model in two lanes of this class; in one batch for None."""
    from lab.execution.model import load_model

    prompts = [tuple(range(20 * place + 3, 20 * place + 3 + length)) for place, length in enumerate((9, 30, 4, 17, 12))]
    work, options = fixed_workload(prompts, [8, 5, 10, 7, 6]), {"batching": "continuous:4", "chunking": "budget:16"}
    if lane is None:
        return run(work, load_model("tiny"), clock="virtual", **options).tokens_sha256
    homes: dict[int, str] = {}
    return run_lanes(work, load_model("tiny"), [lane("a", 1, homes), lane("b", 3, homes)], **options).tokens_sha256


WRONG = {letter for letter, (_, holds) in CLAIMS.items() if not holds}


@exercise(
    "10.5",
    "Which claims are wrong?",
    hints=(
        "Four of the seven are wrong.",
        "A: what does a decode step multiply, and where do lengths matter? F: compare busy and MBU in your tables.",
        "Section 6 says what streams and priorities promise, and what they do not.",
    ),
    solution=lambda: set(WRONG),
    wrong={
        "none": set,
        "all": lambda: set(CLAIMS),
        "the true ones": lambda: set(CLAIMS) - WRONG,
        "believes in priorities": lambda: WRONG - {"D"},
        "believes in a full device": lambda: WRONG - {"F"},
        "does not believe that streams can win": lambda: WRONG | {"G"},
        "no letters": lambda: {"X", "A"},
    },
)
def wrong_claims(answer: Any, probe: Probe) -> None:
    """answer is a set of letters."""
    probe.step(f"it is a set of letters from {', '.join(CLAIMS)}")
    probe.true(isinstance(answer, set | frozenset) and answer <= set(CLAIMS), f"got {answer!r}")
    probe.step("no claim that holds is among them")
    probe.true(not answer - WRONG, f"{len(answer - WRONG)} of your {len(answer)} claims hold")
    probe.step("none is missing")
    probe.true(answer == WRONG, f"{len(WRONG - answer)} wrong claims are missing")
