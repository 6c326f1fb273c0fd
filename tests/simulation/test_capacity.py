"""Capacity search on price lists whose capacity is known."""

from __future__ import annotations

import pytest

import lab
from lab.errors import BadPolicy, BadWorkload
from lab.metrics import RequestTimes
from lab.running import run
from lab.simulation.capacity import Capacity, NeverMeets, backlog_grows, capacity
from lab.simulation.priced import Priced

SERVICE = 0.1  # seconds per request of ONE, a price list under which a one-token request is one step
ONE = Priced(step=SERVICE, token=0.0)


def even(requests: int) -> lab.Workload:
    """One-token answers at equal distances: a D/D/1 queue, whose capacity is exactly 1 / SERVICE at one at a time."""
    return lab.fixed_workload([8] * requests, [1] * requests, [float(place) for place in range(requests)])


def test_a_queue_without_chance_has_its_closed_form_capacity() -> None:
    # one at a time, D/D/1: below 10/s nobody waits; above, the n-th request waits n·(0.1 − 1/rate)
    found = capacity(even(400), ONE, slo={"ttft": 1.5 * SERVICE}, attainment=1.0, precision=0.01, batching="static:1")
    assert found.rate <= 10 * 1.0014 and found.fails > 10  # n = 399 may wait half a service: 10/(1 − 0.5/399)
    assert found.fails <= found.rate * 1.01
    assert found.at_rate["share"] == 1.0 and not found.growing


def test_every_row_is_a_run_and_the_highest_that_holds_is_taken() -> None:
    work = lab.chat_workload(requests=40, rate=4.0, seed=3)
    slo = {"ttft": 1.0, "tpot": 0.06}
    found = capacity(work, Priced(), slo=slo, attainment=0.8, batching="continuous:8")
    rates = [row["rate"] for row in found.tried]
    assert rates == sorted(rates) and found.rate in rates and found.fails in rates
    assert all((row["share"] >= 0.8) == (row["rate"] <= found.rate) for row in found.tried)
    again = run(work.at_rate(found.rate), Priced(), slo=slo, batching="continuous:8")
    meets = sum(times.meets(slo) for times in again.times.values())
    assert found.at_rate["share"] == meets / 40 and found.at_rate["goodput_rps"] == again.goodput_rps
    assert found.at_rate["ttft_s"] == sorted(times.ttft for times in again.times.values())[31]  # 32 of 40 stay within


def test_attainment_and_limits_move_the_capacity_the_right_way() -> None:
    work = lab.chat_workload(requests=60, rate=4.0, seed=0)
    rate = {
        (limit, share): capacity(work, Priced(), slo={"ttft": limit}, attainment=share, batching="continuous:4").rate
        for limit, share in ((0.5, 0.9), (2.0, 0.9), (0.5, 0.5))
    }
    assert rate[0.5, 0.9] < rate[2.0, 0.9] and rate[0.5, 0.9] < rate[0.5, 0.5]


def test_batches_that_wait_to_fill_hold_only_in_the_middle() -> None:
    # a full batch of 4 is needed: at low rates filling takes longer than the limit, at high ones the queue grows
    work, slo = even(80), {"ttft": 1.0}
    found = capacity(work, ONE, slo=slo, attainment=0.9, batching="static:4")
    slow = run(work.at_rate(found.rate / 64), ONE, slo=slo, batching="static:4")
    assert slow.goodput_rps == slow.requests_per_s / 2  # gaps of 0.8 s: two of the four have waited longer
    assert found.rate > 10 and found.at_rate["share"] >= 0.9


def test_a_trace_keeps_its_own_gaps() -> None:
    bursts = lab.fixed_workload([8] * 30, [1] * 30, [float(place // 3) for place in range(30)])
    with pytest.raises(NeverMeets):  # three at once, two at a time: the third always waits for a step
        capacity(bursts, ONE, slo={"ttft": 1.1 * SERVICE}, attainment=1.0, batching="continuous:2")
    assert capacity(even(30), ONE, slo={"ttft": 1.1 * SERVICE}, attainment=1.0, batching="continuous:2").rate > 0


def test_an_slo_nobody_can_meet_says_what_came_nearest() -> None:
    with pytest.raises(NeverMeets, match=r"ttft ≤ 0.05 s for 90 % .* 90 % stay within ttft 0.1 s"):
        capacity(even(20), ONE, slo={"ttft": 0.05}, batching="static:1")


def test_too_few_requests_to_fill_anything() -> None:
    with pytest.raises(BadWorkload, match="all 2 requests meet the SLO even when they arrive almost at once"):
        capacity(even(2), ONE, slo={"ttft": 10.0})


def queue_times(arrivals: list[float], admitted: list[float]) -> list[RequestTimes]:
    return [RequestTimes(*one, finish_reason="length") for one in zip(range(99), arrivals, admitted, strict=False)]


def test_a_backlog_grows_while_requests_come_or_not_at_all() -> None:
    arrivals = [float(place) for place in range(40)]
    assert not backlog_grows(queue_times(arrivals, arrivals))
    assert not backlog_grows(queue_times(arrivals, [at + 30 for at in arrivals[:20]] + arrivals[20:]))  # worked off
    # one let in per 2 s: others wait, place / 2 at each arrival, thus 10 more half of the requests later (above √20)
    assert backlog_grows(queue_times(arrivals, [2 * at for at in arrivals]))
    # one per 1.2 s: place / 6, thus 3.3 more, which chance brings too
    assert not backlog_grows(queue_times(arrivals, [1.2 * at for at in arrivals]))
    refused = [RequestTimes(place, at, finish_reason="refused") for place, at in enumerate(arrivals)]
    assert not backlog_grows([*refused, *queue_times(arrivals, arrivals)]) and not backlog_grows(refused)


def test_the_last_answers_are_no_backlog() -> None:
    # about 15 answers of 50 s run side by side (0.1 s + 15 × 0.01 s a token) and none waits; served_per_s counts the
    # time in which the last of them end, and is far below the rate at which they came
    work = lab.fixed_workload([8] * 31, [200] * 31, [float(place) for place in range(31)])
    found = capacity(work, Priced(step=0.1, token=0.01), slo={"tpot": 0.25}, batching="continuous:64")
    assert found.at_rate["served_per_s"] < 0.9 * found.at_rate["arrived_per_s"]
    assert not found.growing and "a backlog was growing" not in found.summary()


def test_a_growing_backlog_is_said() -> None:
    work = even(30)
    found = capacity(work, ONE, slo={"ttft": 2.0}, attainment=0.9, batching="static:1")
    assert found.growing and "a backlog was growing" in found.summary()
    assert found.rate > 10  # more than can be sustained: 30 requests end before the queue is long


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"slo": {}}, BadPolicy, "needs an SLO"),
        ({"slo": {"speed": 1.0}}, BadPolicy, "SLO on speed"),
        ({"slo": {"ttft": -1.0}}, BadPolicy, "ttft .* -1.0"),
        ({"attainment": 0.0}, BadPolicy, "attainment of 0.0"),
        ({"attainment": 90}, BadPolicy, "attainment of 90"),
        ({"precision": 0.0}, BadPolicy, "precision of 0.0"),
        ({"work": lab.fixed_workload([8, 8], [1, 1])}, BadWorkload, "all 2 requests of fixed-2 arrive at once"),
        ({"batching": "static:0"}, BadPolicy, "max_batch 0"),
        ({"rate": 3}, BadPolicy, "a capacity with rate=3: the rate is what is searched"),
        ({"load": 1.0}, BadPolicy, "a capacity with load=1.0"),
        ({"foo": 3}, BadPolicy, "option 'foo' is not known"),
    ],
)
def test_bad_input(options: dict, error: type[Exception], says: str) -> None:
    settings = {"slo": {"ttft": 1.0}} | options
    with pytest.raises(error, match=says):
        capacity(settings.pop("work", even(4)), ONE, **settings)


def test_refused_requests_meet_nothing() -> None:
    work = lab.fixed_workload([8, 8, 500], [1, 1, 1], [0.0, 1.0, 2.0])
    with pytest.raises(NeverMeets, match="66.7 % do, and 100 % stay within ttft –"):
        capacity(work, ONE, slo={"ttft": 1.0}, attainment=1.0, blocks=4, batching="static:1")


def test_summary_and_json_say_what_was_tried() -> None:
    found = capacity(even(60), ONE, slo={"ttft": 0.3}, batching="static:1")
    assert isinstance(found, Capacity)
    text, record = found.summary(), found.to_dict()
    assert f"capacity: {found.rate:.4g} requests/s for ttft ≤ 0.3 s by 90 %" in text and "simulated" in text
    assert record["capacity_rps"] == found.rate and len(record["tried"]) == len(found.tried)
    assert text.count(" *") == 1


def test_the_watcher_hears_of_every_rate() -> None:
    heard: list[str] = []
    found = capacity(even(30), ONE, slo={"ttft": 0.3}, batching="static:1", watch=heard.append)
    assert len(heard) == len(found.tried) and "meet the SLO" in heard[0]
