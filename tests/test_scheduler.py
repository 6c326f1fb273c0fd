from __future__ import annotations

from harness import Stepper, assert_solo, make_engine, preemptions, request

from lab.batching.continuous import Continuous
from lab.chunking import TokenBudget, WholePrompt
from lab.memory.paged import PagedMemory
from lab.ordering.arrival import Fcfs
from lab.preemption import Recompute
from lab.request import Request
from lab.scheduler import Axes, Scheduler


def make_scheduler(blocks: int, budget: int | None = 100, max_running: int = 16) -> Scheduler:
    """Blocks of four tokens, nothing else around."""
    chunking = WholePrompt() if budget is None else TokenBudget(budget)
    return Scheduler(Axes(Continuous(max_running), chunking, Fcfs(), Recompute()), PagedMemory(blocks, 4))


def put(scheduler: Scheduler, each: Request, computed: int, outputs: int = 0) -> Request:
    """Let `each` run, with `computed` tokens in its blocks."""
    scheduler.memory.grow(each, computed)
    each.num_computed, each.num_output, each.status = computed, outputs, "running"
    each.output = [1] * outputs
    scheduler.running.append(each)
    return each


def shares(schedule) -> list[tuple[int, int]]:
    return [(row.request.id, row.num_tokens) for row in schedule.plan.rows]


# -- budget ------------------------------------------------------------------------------------------------
def test_decodes_come_first_and_prompts_share_what_is_left() -> None:
    scheduler = make_scheduler(64, budget=6)
    put(scheduler, request(0, 20), 5)
    put(scheduler, request(1, 4), 4, outputs=1)
    put(scheduler, request(2, 20), 0)
    assert shares(scheduler.schedule(0.0, True)) == [(1, 1), (0, 5)]


def test_a_budget_smaller_than_the_decodes_serves_the_first() -> None:
    scheduler = make_scheduler(64, budget=2)
    for id in range(3):
        put(scheduler, request(id, 4), 4, outputs=1)
    assert shares(scheduler.schedule(0.0, True)) == [(0, 1), (1, 1)]


def test_waiting_requests_get_the_rest_of_the_budget() -> None:
    scheduler = make_scheduler(64, budget=6)
    put(scheduler, request(0, 3), 0)
    for id in (1, 2, 3):
        scheduler.add(request(id, 2), 0.0)
    schedule = scheduler.schedule(0.0, True)
    assert shares(schedule) == [(0, 3), (1, 2), (2, 1)]
    assert [each.id for each, _ in schedule.admitted] == [1, 2]  # nobody is admitted without a token to compute


def test_whole_prompts_stall_decodes() -> None:
    scheduler = make_scheduler(64, budget=None)
    put(scheduler, request(0, 4), 4, outputs=1)
    scheduler.add(request(1, 30), 0.0)
    assert shares(scheduler.schedule(0.0, True)) == [(1, 30)]


def test_only_the_last_chunk_samples() -> None:
    scheduler = make_scheduler(64, budget=4)
    put(scheduler, request(0, 9), 4)
    assert [row.samples for row in scheduler.schedule(0.0, True).plan.rows] == [False]
    scheduler = make_scheduler(64, budget=4)
    put(scheduler, request(0, 9), 5)
    assert [row.samples for row in scheduler.schedule(0.0, True).plan.rows] == [True]


# -- admission -----------------------------------------------------------------------------------------------
def test_admission_wants_room_for_the_whole_prompt_not_for_its_first_chunk() -> None:
    scheduler = make_scheduler(4, budget=4)
    scheduler.add(request(0, 12), 0.0)
    scheduler.add(request(1, 8), 0.0)
    schedule = scheduler.schedule(0.0, True)
    assert [each.id for each, _ in schedule.admitted] == [0]
    scheduler = make_scheduler(4, budget=40)
    scheduler.add(request(0, 12), 0.0)
    scheduler.add(request(1, 8), 0.0)
    assert shares(scheduler.schedule(0.0, True)) == [(0, 12)]


def test_blocks_promised_to_a_half_computed_prompt_are_not_given_away() -> None:
    scheduler = make_scheduler(5)
    put(scheduler, request(0, 16), 4).in_flight = True  # holds 1 of the 4 blocks it will need
    scheduler.add(request(1, 8), 0.0)
    assert scheduler.schedule(0.0, True).plan is None  # 4 are free, 3 of them promised
    scheduler.remove(scheduler.waiting.first(1, 0.0)[0])
    scheduler.add(request(2, 4), 0.0)
    assert shares(scheduler.schedule(0.0, True)) == [(2, 4)]


def test_the_head_of_the_line_holds_up_those_behind_it() -> None:
    scheduler = make_scheduler(4)
    put(scheduler, request(0, 7), 4)
    scheduler.add(request(1, 12), 0.0)  # needs 3 blocks, 2 are left
    scheduler.add(request(2, 1), 1.0)  # would fit
    schedule = scheduler.schedule(1.0, True)
    assert shares(schedule) == [(0, 3)] and not schedule.admitted


def test_priority_makes_somebody_else_the_head_of_the_line() -> None:
    scheduler = make_scheduler(4)
    scheduler.add(request(1, 12), 0.0)
    scheduler.add(request(2, 1, priority=1), 1.0)
    assert shares(scheduler.schedule(1.0, True)) == [(2, 1), (1, 12)]


def test_nothing_is_admitted_in_a_step_that_preempts() -> None:
    scheduler = make_scheduler(3)
    put(scheduler, request(0, 4), 4, outputs=1)
    put(scheduler, request(1, 8), 8, outputs=1)
    scheduler.add(request(2, 1, priority=1), 0.0)  # goes before the victim
    schedule = scheduler.schedule(0.0, True)
    assert [each.id for each, _ in schedule.preempted] == [1] and not schedule.admitted
    assert scheduler.memory.counts().free == 1  # there would be room for request 2


# -- preemption ----------------------------------------------------------------------------------------------
def test_the_latest_arrival_yields_and_the_oldest_never() -> None:
    scheduler = make_scheduler(4)
    put(scheduler, request(0, 4), 4, outputs=1)
    put(scheduler, request(1, 4, arrival=1.0), 4, outputs=1)
    latest = put(scheduler, request(2, 8, arrival=2.0), 8, outputs=1)
    schedule = scheduler.schedule(3.0, True)
    assert schedule.preempted == [(latest, 8)]  # with the computed tokens dropped
    assert (latest.num_computed, latest.block_table, latest.status) == (0, [], "preempted")
    assert (latest.num_output, latest.output, latest.num_preemptions) == (1, [1], 1)  # what was generated is kept
    assert list(scheduler.waiting) == [latest] and scheduler.waiting.oldest_arrival == 2.0
    assert shares(schedule) == [(0, 1), (1, 1)]


def test_the_latest_yields_itself_when_it_is_the_one_that_needs_a_block() -> None:
    scheduler = make_scheduler(2)
    put(scheduler, request(0, 3), 3, outputs=1)
    young = put(scheduler, request(1, 4, arrival=1.0), 4, outputs=1)
    schedule = scheduler.schedule(3.0, True)
    assert [each for each, _ in schedule.preempted] == [young]
    assert shares(schedule) == [(0, 1)]


def test_the_oldest_is_not_a_victim_even_when_it_was_admitted_last() -> None:
    scheduler = make_scheduler(2)
    young = put(scheduler, request(1, 4, arrival=5.0), 4, outputs=1)
    old = put(scheduler, request(0, 4, arrival=1.0), 4, outputs=1)
    schedule = scheduler.schedule(6.0, True)
    assert [each for each, _ in schedule.preempted] == [young]
    assert shares(schedule) == [(0, 1)] and old.status == "running"


def test_no_policy_can_choose_the_oldest() -> None:
    class Oldest(Recompute):
        def victim(self, candidates):
            return min(candidates, key=lambda each: each.order)

    scheduler = make_scheduler(3)
    scheduler.axes.preemption = Oldest()
    put(scheduler, request(0, 4), 4, outputs=1)
    put(scheduler, request(1, 4, arrival=1.0), 4, outputs=1)
    put(scheduler, request(2, 3, arrival=2.0), 3, outputs=1)  # has room in its block
    schedule = scheduler.schedule(3.0, True)
    assert [each.id for each, _ in schedule.preempted] == [1]
    assert shares(schedule) == [(0, 1), (2, 1)]


def test_a_request_alone_waits_for_nobody() -> None:
    scheduler = make_scheduler(1)
    put(scheduler, request(0, 2), 2, outputs=1)
    assert shares(scheduler.schedule(0.0, True)) == [(0, 1)]


def test_requests_in_flight_are_neither_planned_nor_preempted() -> None:
    scheduler = make_scheduler(2)
    flying = put(scheduler, request(1, 4, arrival=2.0), 4, outputs=1)
    put(scheduler, request(0, 4), 4, outputs=1)
    flying.in_flight = True
    schedule = scheduler.schedule(3.0, True)
    assert schedule.plan is None and not schedule.preempted  # wait until it lands
    flying.in_flight = False
    assert [each for each, _ in scheduler.schedule(3.0, True).preempted] == [flying]


def test_pitfall_12_a_victims_tokens_return_to_the_budget_for_those_behind_it() -> None:
    scheduler = make_scheduler(6, budget=6)
    put(scheduler, request(9, 4, arrival=9.0), 4, outputs=1)  # a decode, first in the step
    put(scheduler, request(0, 12), 8)
    put(scheduler, request(1, 8, arrival=1.0), 4)
    scheduler.memory.pool.allocate(1)  # somebody else's, so that nothing is free after the decode's growth
    schedule = scheduler.schedule(10.0, True)
    assert [each.id for each, _ in schedule.preempted] == [9]
    assert shares(schedule) == [(0, 4), (1, 2)]  # 6 of 6, although the decode had spent one


def test_pitfall_12_a_victims_tokens_return_to_the_request_it_yielded_to() -> None:
    scheduler = make_scheduler(17, budget=8)
    put(scheduler, request(1, 1, arrival=1.0), 8, outputs=8)  # decode, takes the last block but one
    put(scheduler, request(0, 64), 56)
    schedule = scheduler.schedule(2.0, True)
    assert [each.id for each, _ in schedule.preempted] == [1]
    assert shares(schedule) == [(0, 8)]


def test_a_preempted_request_returns_when_all_its_tokens_fit() -> None:
    # request 1 is preempted with 8 computed tokens and must not return before its 9th fits too
    requests = [request(0, 4, 9), request(1, 8, 6)]
    engine = make_engine(blocks=4)
    stepper = Stepper(engine, requests)
    while not preemptions(engine):
        stepper.step()
    while requests[1].status == "preempted":
        free = engine.memory.counts().free
        stepper.step()
        if requests[1].status == "running":
            assert free + 3 >= engine.memory.blocks_for(requests[1].num_prompt + 1)
    stepper.run()
    assert_solo(requests)


# -- shape -----------------------------------------------------------------------------------------------------
def test_padded_rows_are_as_wide_as_the_widest() -> None:
    scheduler = make_scheduler(64)
    scheduler.axes.attention = "padded"
    put(scheduler, request(0, 4), 4, outputs=1)
    put(scheduler, request(1, 7), 0)
    plan = scheduler.schedule(0.0, True).plan
    assert [(row.num_tokens, row.padding) for row in plan.rows] == [(1, 6), (7, 0)]
    assert (plan.num_tokens, plan.num_padding) == (8, 6)


def test_without_work_there_is_no_plan() -> None:
    schedule = make_scheduler(4).schedule(0.0, True)
    assert schedule.plan is None and schedule.wake_at is None


def test_axes_take_attention_and_delivery_from_batching_unless_given() -> None:
    assert (make_scheduler(1).axes.attention, make_scheduler(1).axes.delivery) == ("packed", "token")
    given = Axes(Continuous(1), WholePrompt(), Fcfs(), Recompute(), attention="padded")
    assert (given.attention, given.delivery) == ("padded", "token")
