from __future__ import annotations

import random

import pytest
from harness import Stepper, assert_solo, make_engine, preemptions, request

from lab.axes import describe, parse
from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy
from lab.preemption import RULES, Recompute, Swap
from lab.request import Request


def runs(id: int, computed: int, blocks: int, arrival: float, priority: int = 0) -> Request:
    each = Request(id, None, arrival_time=arrival, priority=priority, num_prompt=99)
    each.num_computed, each.block_table = computed, list(range(blocks))
    return each


CANDIDATES = [
    runs(0, computed=50, blocks=7, arrival=1.0, priority=1),
    runs(1, computed=20, blocks=3, arrival=2.0, priority=-1),
    runs(2, computed=5, blocks=2, arrival=3.0),
    runs(3, computed=60, blocks=4, arrival=4.0),
]


@pytest.mark.parametrize("policy", [Recompute, Swap])
@pytest.mark.parametrize(
    ("rule", "victim"), [("latest", 3), ("least-progress", 2), ("most-blocks", 0), ("lowest-priority", 1)]
)
def test_each_rule_points_at_its_victim(policy: type, rule: str, victim: int) -> None:
    assert policy(rule).victim(CANDIDATES).id == victim


@pytest.mark.parametrize("rule", RULES)
def test_ties_go_to_the_latest_arrival_and_then_to_the_larger_id(rule: str) -> None:
    alike = [runs(id, computed=5, blocks=2, arrival=arrival) for id, arrival in ((4, 2.0), (7, 2.0), (9, 1.0))]
    assert Recompute(rule).victim(alike).id == 7


@pytest.mark.parametrize("kind", ["recompute", "swap"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(6))
def test_under_every_rule_everybody_finishes_with_the_same_tokens(kind: str, rule: str, seed: int) -> None:
    draw = random.Random(seed)
    requests = [
        request(id, draw.randint(1, 16), draw.randint(2, 16), arrival=id / 900, priority=draw.choice([0, 0, 1]))
        for id in range(24)
    ]
    engine = make_engine(blocks=12, batching="continuous:8", chunking="budget:10", preemption=f"{kind}:{rule}")
    Driver(engine, requests, VirtualClock()).run()
    assert preemptions(engine) > 0
    assert_solo(requests)


@pytest.mark.parametrize("rule", RULES)
def test_the_oldest_is_never_a_victim_whatever_the_rule_would_say(rule: str) -> None:
    oldest = request(0, 8, 12, arrival=0.0, priority=-9)  # lowest priority, most blocks
    others = [request(id, 2, 12, arrival=0.1 * id, priority=9) for id in range(1, 5)]
    engine = make_engine(blocks=6, batching="continuous:5", preemption=f"recompute:{rule}")
    Stepper(engine, [oldest, *others]).run()
    assert preemptions(engine) > 0 and oldest.num_preemptions == 0


def test_most_blocks_takes_fewer_victims_and_least_progress_computes_less_again() -> None:
    def work(rule: str) -> tuple[int, int]:
        # request 1 holds four blocks, 2 and 3 one each; the oldest needs a block when it crosses into its third
        requests = [request(0, 8, 8), request(1, 15, 2, arrival=0.1), request(2, 2, 2, 0.2), request(3, 2, 2, 0.3)]
        engine = make_engine(blocks=8, batching="continuous:4", preemption=f"recompute:{rule}")
        Stepper(engine, requests).run()
        return preemptions(engine), sum(step.recomputed for step in engine.trace)

    least, most = work("least-progress"), work("most-blocks")
    assert least[1] < most[1]


def test_specs() -> None:
    assert parse("preemption", "recompute").rule == parse("preemption", "recompute:latest").rule == "latest"
    assert describe(parse("preemption", "recompute:most-blocks")) == "recompute:most-blocks"
    assert describe(parse("preemption", "swap:latest")) == "swap"
    with pytest.raises(BadPolicy, match="'youngest' is not known; there are latest, least-progress"):
        Recompute("youngest")
