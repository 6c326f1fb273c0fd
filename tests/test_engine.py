from __future__ import annotations

import threading

import pytest
from harness import Stepper, assert_solo, make_engine, preemptions, request, run_all
from oracles import assert_books_balance, solo

from lab.batching.continuous import Continuous
from lab.batching.static import Static
from lab.chunking import TokenBudget
from lab.errors import BadPolicy, BadRequest, EngineStopped, NeverFits
from lab.request import Request, SamplingParams


def kinds(engine, id: int) -> list[str]:
    """What happened to one request, in order."""
    return [event.kind for event in [*engine.trace.events(), *engine._events] if event.request == id]


# -- the end of a request --------------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", [1, 2, 5, 17])
@pytest.mark.parametrize("axes", [dict(), dict(batching="static:2"), dict(chunking="budget:1")], ids=str)
def test_max_tokens_is_exact(limit: int, axes: dict) -> None:
    requests = [request(0, 5, limit), request(1, 3, 4)]
    run_all(requests, **axes)
    assert len(requests[0].output) == limit == requests[0].num_output
    assert requests[0].finish_reason == "length"
    assert requests[0].num_computed == 5 + limit - 1  # the last token's keys are never computed
    assert_solo(requests)


def test_max_tokens_1_ends_with_the_prompt() -> None:
    requests = [request(0, 6, 1)]
    engine = run_all(requests)
    assert len(engine.trace) == 1 and engine.trace[0].computed == 6


def first_tokens(length: int, count: int, id: int = 0) -> list[int]:
    return solo(list(request(id, length).prompt), SamplingParams(max_tokens=count), frozenset())


def test_eos_as_the_first_token_straight_from_the_prompt() -> None:
    (token,) = first_tokens(6, 1)
    requests = [request(0, 6, 9)]
    engine = run_all(requests, eos=[token])
    assert requests[0].output == [token] and requests[0].finish_reason == "stop" and len(engine.trace) == 1


def test_several_eos_ids_whichever_comes_first() -> None:
    tokens = first_tokens(6, 8)
    requests = [request(0, 6, 9)]
    run_all(requests, eos=[tokens[6], tokens[3]])
    assert requests[0].output == tokens[:4] and requests[0].finish_reason == "stop"


def test_ignore_eos_runs_to_max_tokens() -> None:
    tokens = first_tokens(6, 8)
    requests = [request(0, 6, 8, ignore_eos=True)]
    run_all(requests, eos=[tokens[2]])
    assert requests[0].output == tokens and requests[0].finish_reason == "length"


def test_stop_tokens_end_even_when_eos_is_ignored() -> None:
    tokens = first_tokens(6, 8)
    requests = [request(0, 6, 8, ignore_eos=True, stop_token_ids=(tokens[4], 99_999))]
    run_all(requests, eos=[tokens[2]])
    assert requests[0].output == tokens[:5] and requests[0].finish_reason == "stop"


def test_stop_tokens_are_each_requests_own() -> None:
    tokens = first_tokens(6, 8)
    requests = [request(0, 6, 8), request(1, 6, 8)]
    requests[1].prompt = requests[0].prompt
    requests[1].sampling = SamplingParams(max_tokens=8, stop_token_ids=(tokens[1],))
    run_all(requests)
    assert requests[0].output == tokens and requests[1].output == tokens[:2]


def test_eos_on_the_last_allowed_token_is_a_stop() -> None:
    tokens = first_tokens(6, 3)
    requests = [request(0, 6, 3)]
    run_all(requests, eos=[tokens[2]])
    assert requests[0].output == tokens and requests[0].finish_reason == "stop"


# -- refusal ---------------------------------------------------------------------------------------------------
def test_a_request_that_never_fits_is_refused_with_both_numbers_and_the_others_go_on() -> None:
    requests = [request(0, 5, 3), request(1, 30, 20), request(2, 4, 3)]
    engine = run_all(requests, blocks=6)
    error = requests[1].error
    assert isinstance(error, NeverFits) and (error.request_id, error.needs, error.has) == (1, 13, 6)
    assert "13 blocks" in str(error) and "is 6" in str(error)
    assert requests[1].finish_reason == "refused" and requests[1].status == "finished" and not requests[1].output
    assert engine.trace.requests[1].finish_reason == "refused" and "13" in engine.trace.requests[1].error
    assert kinds(engine, 1) == ["arrived", "refused"]
    assert [each.finish_reason for each in requests] == ["length", "refused", "length"]
    assert_solo([requests[0], requests[2]])
    assert_books_balance(engine)


def test_a_request_longer_than_the_context_is_refused() -> None:
    engine = make_engine(blocks=64)
    engine.max_context = 12
    requests = [request(0, 8, 4), request(1, 8, 5)]
    Stepper(engine, requests).run()
    assert [each.finish_reason for each in requests] == ["length", "refused"]
    assert "13 tokens of context" in str(requests[1].error) and "12" in str(requests[1].error)


def test_a_run_of_refusals_only_is_over_at_once() -> None:
    requests = [request(id, 99, 9) for id in range(3)]
    engine = run_all(requests, blocks=2)
    assert engine.idle and len(engine.trace) == 0
    assert [event.kind for event in engine.flush().events()].count("refused") == 3


@pytest.mark.parametrize("arrivals", [(0.0, 0.0), (0.0, 1.0)])
def test_an_id_that_is_taken_is_refused(arrivals: tuple[float, float]) -> None:
    first, second = request(7, 4, arrival=arrivals[0]), request(7, 5, arrival=arrivals[1])
    engine = make_engine()
    try:
        Stepper(engine, [first, second]).run()
    except BadRequest as error:
        assert "7" in str(error)
        return
    assert first.finish_reason == "length" and second.finish_reason == "refused"
    assert isinstance(second.error, BadRequest) and "7" in str(second.error)


# -- abort -----------------------------------------------------------------------------------------------------
def prepare(state: str):
    """An engine in which request 1 is in `state`, beside request 0, and a stepper over it."""
    sizes = {
        "waiting": dict(batching="continuous:1"),
        "mid-chunk": dict(chunking="budget:5"),
        "running": dict(),
        "preempted": dict(blocks=5),
        "finished": dict(),
    }
    requests = [request(0, 6, 12), request(1, 9, 3 if state == "finished" else 8), request(2, 3, 2, arrival=0.5)]
    if state == "preempted":
        requests[1] = request(1, 6, 12)
    stepper = Stepper(make_engine(**sizes[state]), requests)
    reached = {
        "waiting": lambda: requests[1].status == "waiting",
        "mid-chunk": lambda: 0 < requests[1].num_computed < 9,
        "running": lambda: requests[1].status == "running" and requests[1].num_output >= 2,
        "preempted": lambda: requests[1].status == "preempted",
        "finished": lambda: requests[1].status == "finished",
    }[state]
    stepper.step()
    for _ in range(50):
        if reached():
            return stepper, requests
        stepper.step()
    raise AssertionError(f"request 1 was never {state}")


@pytest.mark.parametrize("state", ["waiting", "mid-chunk", "running", "preempted", "finished"])
def test_abort_in_every_state(state: str) -> None:
    stepper, requests = prepare(state)
    engine, outputs = stepper.engine, list(requests[1].output)
    engine.abort(1)
    stepper.run()
    assert requests[1].output == outputs  # nothing after the abort
    assert requests[1].finish_reason == ("length" if state == "finished" else "abort")
    assert kinds(engine, 1).count("aborted") == (state != "finished")
    assert requests[1].status == "finished" and requests[1].block_table == []
    assert requests[0].finish_reason == requests[2].finish_reason == "length"
    assert_solo([requests[0], requests[2]])
    assert_books_balance(engine)


def test_abort_twice_and_of_nobody() -> None:
    requests = [request(0, 5, 3), request(1, 5, 3)]
    stepper = Stepper(make_engine(), requests)
    stepper.step()
    for id in (1, 1, 12345, -1):
        stepper.engine.abort(id)
    stepper.run()
    assert kinds(stepper.engine, 1).count("aborted") == 1
    assert_solo(requests[:1])


def test_abort_in_the_inbox_before_the_request_was_ever_seen_waiting() -> None:
    engine, only = make_engine(), request(0, 5, 3)
    stepper = Stepper(engine, [only])
    engine.abort(0)
    assert stepper.run() == [] and only.finish_reason == "abort" and engine.idle


def test_abort_of_a_request_in_flight_waits_until_the_step_lands() -> None:
    requests = [request(0, 5, 6), request(1, 5, 6)]
    engine = make_engine()
    Stepper(engine, requests).step()
    flight = engine.begin(1.0)
    engine.abort(1)
    assert engine.begin(1.0) is None  # reads the inbox; both are in flight
    assert requests[1].status == "running" and requests[1].block_table  # its blocks are in use
    engine.execute(flight)
    engine.commit(flight, 2.0)
    assert requests[1].finish_reason == "abort" and not requests[1].block_table
    assert len(requests[1].output) == 1  # the token of the landed step is dropped
    Stepper(engine).run()
    assert_solo(requests[:1])
    assert_books_balance(engine)


def test_a_dropped_token_is_not_in_the_trace() -> None:
    from lab.metrics import request_times

    requests = [request(0, 5, 6), request(1, 5, 6)]
    engine = make_engine()
    Stepper(engine, requests).step()
    flight = engine.begin(1.0)
    engine.abort(1)
    engine.begin(1.0)
    engine.execute(flight)
    engine.commit(flight, 2.0)
    assert request_times(engine.flush())[1].output == requests[1].output


def test_abort_of_the_last_running_row_ends_a_static_batch() -> None:
    requests = [request(0, 3, 1), request(1, 4, 9), request(2, 5, 2), request(3, 5, 2)]
    engine = make_engine(batching="static:2")
    stepper = Stepper(engine, requests)
    stepper.step()
    assert engine.scheduler.carried == [requests[0]]
    assert "delivered" not in kinds(engine, 0)
    engine.abort(1)
    step = stepper.step()  # the batch is over, the next one starts in the same step
    assert kinds(engine, 0) == ["arrived", "admitted", "finished", "delivered"]
    assert sorted(row.request for row in step.rows) == [2, 3]
    assert kinds(engine, 1)[-1] == "aborted"  # what it had is not delivered
    stepper.run()
    assert_books_balance(engine)


def test_abort_of_one_row_does_not_end_a_static_batch() -> None:
    requests = [request(0, 3, 1), request(1, 4, 5), request(2, 5, 5)]
    engine = make_engine(batching="static:3")
    stepper = Stepper(engine, requests)
    stepper.step()
    engine.abort(2)
    step = stepper.step()
    assert [row.request for row in step.rows] == [1, 0] and step.carried == 1
    stepper.run()
    assert_solo(requests[:2])


# -- delivery --------------------------------------------------------------------------------------------------
def test_a_batch_is_delivered_when_its_last_row_is_done() -> None:
    requests = [request(0, 3, 1), request(1, 4, 5)]
    engine = run_all(requests, batching="static:2")
    end = engine.trace[-1].end
    delivered = {e.request: (e.time, e.value) for e in engine.trace.events() if e.kind == "delivered"}
    assert delivered == {0: (end, 1), 1: (end, 5)}
    assert requests[0].first_token_time < end  # computed long before


@pytest.mark.parametrize("axes", [dict(), dict(batching="static:2", delivery="token")], ids=str)
def test_delivery_by_token_needs_no_event(axes: dict) -> None:
    engine = run_all([request(0, 3, 1), request(1, 4, 5)], **axes)
    assert not any(event.kind == "delivered" for event in engine.trace.events())


# -- preemption ------------------------------------------------------------------------------------------------
def test_a_preempted_request_is_computed_again_with_the_same_tokens() -> None:
    requests = [request(id, 6, 12) for id in range(3)]
    engine = run_all(requests, blocks=6)
    assert preemptions(engine) > 0
    assert sum(step.recomputed for step in engine.trace) > 0
    assert sum(each.num_preemptions for each in requests) == preemptions(engine)
    assert requests[0].num_preemptions == 0  # the oldest
    assert_solo(requests)
    assert_books_balance(engine)


def test_recomputed_tokens_are_counted_once_each() -> None:
    requests = [request(0, 6, 12), request(1, 6, 12)]
    engine = run_all(requests, blocks=5, chunking="budget:3")
    dropped = [event.value for event in engine.trace.events() if event.kind == "preempted"]
    assert dropped and sum(step.recomputed for step in engine.trace) == sum(dropped)
    assert sum(step.computed for step in engine.trace) == 2 * (6 + 11) + sum(dropped)


# -- flights ---------------------------------------------------------------------------------------------------
def test_two_flights_over_disjoint_requests() -> None:
    first, second = request(0, 6, 4), request(1, 5, 4)
    engine = make_engine()
    engine.submit(first)
    one = engine.begin(0.0)
    engine.submit(second)
    two = engine.begin(0.1)
    assert [row.request for row in one.plan.rows] == [first] and [row.request for row in two.plan.rows] == [second]
    assert engine.begin(0.2) is None  # everybody is in flight
    assert not engine.idle
    for flight, now in ((two, 0.3), (one, 0.4)):  # land in the other order
        engine.execute(flight)
        engine.commit(flight, now)
    assert (first.num_output, second.num_output) == (1, 1)
    assert (first.first_token_time, second.first_token_time) == (0.4, 0.3)
    Stepper(engine).run()
    assert_solo([first, second])
    assert_books_balance(engine)


def test_a_flight_ending_frees_nothing_of_the_other() -> None:
    first, second = request(0, 4, 1), request(1, 8, 3)
    engine = make_engine(blocks=4)
    engine.submit(first)
    one = engine.begin(0.0)
    engine.submit(second)
    two = engine.begin(0.0)
    held = list(second.block_table)
    engine.execute(one)
    engine.commit(one, 1.0)
    assert second.block_table == held and second.in_flight and engine.memory.counts().used == len(held)
    engine.execute(two)
    engine.commit(two, 2.0)
    Stepper(engine).run()
    assert_solo([first, second])


def test_preemption_never_takes_a_request_in_flight() -> None:
    old, young = request(0, 7, 6), request(1, 4, 6, arrival=1.0)
    engine = make_engine(blocks=4)
    stepper = Stepper(engine, [old, young])
    stepper.step()
    old.in_flight = True  # leave the oldest out of the next plan
    flight = engine.begin(stepper.now)
    assert [row.request for row in flight.plan.rows] == [young]
    old.in_flight = False
    while (other := engine.begin(stepper.now)) is not None:  # the oldest grows until nothing is free
        engine.execute(other)
        engine.commit(other, stepper.now)
        assert young.in_flight and young.status == "running"
        if old.status == "finished":
            break
    engine.execute(flight)
    engine.commit(flight, stepper.now)
    stepper.run()
    assert_solo([old, young])
    assert_books_balance(engine)


def test_commit_wants_execute_first() -> None:
    engine = make_engine()
    engine.submit(request(0, 3))
    flight = engine.begin(0.0)
    with pytest.raises(AssertionError, match="execute"):
        engine.commit(flight, 1.0)


# -- reconfigure -----------------------------------------------------------------------------------------------
def test_static_to_continuous_while_running() -> None:
    requests = [request(0, 3, 1), request(1, 4, 9), request(2, 5, 3), request(3, 6, 3)]
    engine = make_engine(batching="static:2")
    stepper = Stepper(engine, requests)
    step = stepper.step()
    assert step.attention == "padded" and engine.scheduler.carried == [requests[0]]
    engine.reconfigure(batching=Continuous(4), chunking=TokenBudget(64))
    step = stepper.step()
    assert not engine.scheduler.carried and step.carried == 0 and step.padded == 0
    assert step.attention == "packed" and engine.scheduler.axes.delivery == "token"
    assert [row.request for row in step.rows] == [1, 2, 3]  # the others join the running one at once
    stepper.run()
    assert_solo(requests)
    assert_books_balance(engine)


def test_the_change_is_an_event() -> None:
    engine = make_engine(batching="static:2")
    stepper = Stepper(engine, [request(0, 3, 3)])
    stepper.step()
    engine.reconfigure(batching=Continuous(4))
    stepper.run()
    notes = [event.note for event in engine.trace.events() if event.kind == "reconfigured"]
    assert notes == ["attention=packed", "delivery=token", "batching=continuous"]


def test_tokens_held_back_by_a_batch_are_delivered_when_it_is_dissolved() -> None:
    requests = [request(0, 3, 1), request(1, 4, 9)]
    engine = make_engine(batching="static:2")
    stepper = Stepper(engine, requests)
    stepper.step()
    stepper.step()
    changed_at = stepper.now
    engine.reconfigure(batching=Continuous(4))
    stepper.run()
    times = {event.request: event.time for event in engine.trace.events() if event.kind == "delivered"}
    assert times[0] == changed_at


def test_continuous_to_static_while_running() -> None:
    requests = [request(id, 4, 3 + 2 * id) for id in range(3)] + [request(3, 4, 2, arrival=1.0)]
    engine = make_engine(batching="continuous:3")
    stepper = Stepper(engine, requests)
    stepper.step()
    engine.reconfigure(batching=Static(3))
    steps = stepper.run()
    assert all(step.attention == "padded" for step in steps) and any(step.carried for step in steps)
    assert [sorted({row.request for row in step.rows}) for step in steps][-2:] == [[3], [3]]
    assert_solo(requests)


def test_attention_and_delivery_may_be_given_with_the_batching() -> None:
    engine = make_engine()
    engine.reconfigure(batching=Static(2), attention="packed", delivery="token")
    Stepper(engine, [request(0, 3, 3)]).run()
    axes = engine.scheduler.axes
    assert (axes.batching.name, axes.attention, axes.delivery) == ("static", "packed", "token")


def test_a_new_ordering_sorts_those_who_wait() -> None:
    class Longest:
        name, static = "longest-test", True

        def key(self, request: Request, now: float) -> float:
            return -request.num_prompt

    requests = [request(id, length, 2) for id, length in enumerate((3, 4, 9, 6))]
    engine = make_engine(batching="continuous:1")
    stepper = Stepper(engine, requests)
    stepper.step()
    engine.reconfigure(ordering=Longest())
    stepper.run()
    order = [event.request for event in engine.trace.events() if event.kind == "admitted"]
    assert order == [0, 2, 3, 1]


@pytest.mark.parametrize("name", ["memory", "model", "prefix_cache", "blocks"])
def test_memory_and_model_may_not_change(name: str) -> None:
    engine = make_engine()
    with pytest.raises(BadPolicy, match=f"{name} cannot change while an engine runs"):
        engine.reconfigure(**{name: 1})


@pytest.mark.parametrize(
    "axes",
    [dict(attention="round"), dict(delivery="pigeon"), dict(delivery="batch"), dict(batching="continuous:0")],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_refused_by_reconfigure(axes: dict) -> None:
    with pytest.raises(BadPolicy):
        make_engine().reconfigure(**axes)


def test_policies_observe_every_step_and_only_those_that_want_to() -> None:
    class Watching(Continuous):
        def __init__(self) -> None:
            super().__init__(4)
            self.seen = []

        def observe(self, step) -> None:
            self.seen.append(step.index)

    policy = Watching()
    engine = make_engine(batching=policy)
    steps = Stepper(engine, [request(0, 3, 3)]).run()
    assert policy.seen == [step.index for step in steps] == [0, 1, 2]


# -- the inbox -------------------------------------------------------------------------------------------------
def test_a_closed_engine_finishes_what_it_has_and_takes_nothing_new() -> None:
    engine, only = make_engine(), request(0, 4, 3)
    engine.submit(only)
    engine.close()
    with pytest.raises(EngineStopped, match="closed"):
        engine.submit(request(1, 4))
    Stepper(engine).run()
    assert_solo([only])


def test_a_closed_engine_still_aborts() -> None:
    engine, only = make_engine(), request(0, 4, 30)
    stepper = Stepper(engine, [only])
    stepper.step()
    engine.close()
    engine.abort(0)
    stepper.run()
    assert only.finish_reason == "abort"


def test_every_message_wakes_the_clock() -> None:
    for send in (
        lambda engine: engine.submit(request(0, 3)),
        lambda engine: engine.abort(0),
        lambda engine: engine.reconfigure(chunking=TokenBudget(8)),
        lambda engine: engine.close(),
    ):
        engine = make_engine()
        assert not engine.wake.is_set()
        send(engine)
        assert engine.wake.is_set()
        engine.begin(0.0)
        assert not engine.wake.is_set()


def test_requests_may_be_submitted_and_aborted_from_other_threads() -> None:
    engine, stepper = make_engine(batching="continuous:4"), None
    requests = [request(id, 3 + id % 5, 4) for id in range(60)]

    def hand_in(part: list[Request]) -> None:
        for each in part:
            engine.submit(each)
            if each.id % 7 == 0:
                engine.abort(each.id)

    threads = [threading.Thread(target=hand_in, args=(requests[start::3],)) for start in range(3)]
    stepper = Stepper(engine)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stepper.step()
    for thread in threads:
        thread.join()
    stepper.run()
    assert sorted(engine.requests) == list(range(60))
    assert all(each.status == "finished" for each in requests)
    assert_solo(each for each in requests if each.finish_reason == "length")
    assert sum(each.finish_reason == "length" for each in requests) >= 60 - 9
    assert_books_balance(engine)


def test_step_is_begin_execute_commit() -> None:
    engine = make_engine()
    assert engine.step(0.0) is None
    engine.submit(request(0, 3, 1))
    step = engine.step(2.0)
    assert step.start == 2.0 and step.end == pytest.approx(2.0 + 0.01 * 1.03) and engine.idle


def test_the_books_identity_under_pressure() -> None:
    requests = [request(id, 3 + 5 * id % 11, 9 + id) for id in range(9)]
    engine = run_all(requests, blocks=8, chunking="budget:5")
    assert preemptions(engine) > 0
    computed = sum(step.computed for step in engine.trace)
    dropped = sum(event.value for event in engine.trace.events() if event.kind == "preempted")
    assert computed == sum(each.num_tokens - 1 for each in requests) + dropped
    assert engine.runner.computed == computed  # what the runner really did
