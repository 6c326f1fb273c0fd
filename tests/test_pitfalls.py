"""The ways in which public engines went wrong, one test (or more) each, numbered as in the team's list.

Here are those of the core; 12 is in test_scheduler.py, and what needs real tensors (11, 30, 31, 32 and half of 28)
in test_same_tokens.py.
"""

from __future__ import annotations

from collections import Counter

import pytest
from harness import Stepper, assert_solo, make_engine, preemptions, request, run_all
from oracles import assert_books_balance, solo

from lab.errors import BlockError, NeverFits
from lab.memory.paged import PagedMemory
from lab.request import Request, SamplingParams

BS = 4  # block size of make_engine


# -- allocation and accounting -------------------------------------------------------------------------------
def test_pitfall_01_no_block_leaks() -> None:
    requests = [request(id, 3 + 3 * id % 7, 9, stop_token_ids=tuple(range(0, 1000, 9))) for id in range(12)]
    engine = make_engine(blocks=7, chunking="budget:6")
    stepper = Stepper(engine, requests)
    for id in (3, 8):
        stepper.step()
        engine.abort(id)
    for step in stepper.run():
        assert step.free + step.used + step.cached == 7
    assert preemptions(engine) > 0
    assert engine.memory.counts() == (7, 0, 0)
    assert_books_balance(engine)


def test_pitfall_01_the_integrity_check_does_something() -> None:
    engine = make_engine(blocks=8)
    Stepper(engine, [request(0, 6, 9)]).step()
    engine.check()
    leaked = engine.requests[0].block_table.pop()
    with pytest.raises(BlockError):
        engine.check()
    engine.requests[0].block_table.append(leaked)
    engine.check()
    engine.memory.pool._free.append(leaked)
    with pytest.raises(BlockError):
        engine.check()


def test_pitfall_02_references_are_the_live_tables_and_nobody_shares_a_slot() -> None:
    requests = [request(id, 5, 9) for id in range(6)]
    engine = make_engine(blocks=9)
    stepper = Stepper(engine, requests)
    while not engine.idle:
        stepper.step()
        held = Counter(block for each in requests for block in each.block_table)
        assert [held[block] for block in range(9)] == engine.memory.pool.references
        assert not set(held) & set(engine.memory.pool._free)
        assert all(count == 1 for count in held.values())
    assert preemptions(engine) > 0


@pytest.mark.parametrize(
    ("length", "limit", "context"),
    [(41, 1, 4096), (8, 34, 4096), (8, 9, 16)],
    ids=["prompt > pool", "prompt + max_tokens > pool", "> max context"],
)
def test_pitfall_03_what_never_fits_is_refused_and_the_others_finish(length: int, limit: int, context: int) -> None:
    requests = [request(0, 8, 8), request(1, length, limit), request(2, 8, 8)]
    engine = make_engine(blocks=10)
    engine.max_context = context
    Stepper(engine, requests).run()
    error = requests[1].error
    assert isinstance(error, NeverFits) and str(error.needs) in str(error) and str(error.has) in str(error)
    assert [each.finish_reason for each in requests] == ["length", "refused", "length"]
    assert_solo([requests[0], requests[2]])
    assert_books_balance(engine)


def test_pitfall_04_a_lone_request_fills_the_pool_to_the_last_slot() -> None:
    fits, too_long = request(0, 8, 33), request(1, 8, 34)  # 40 slots: 8 + 33 - 1 are computed
    engine = run_all([fits], blocks=10)
    assert fits.finish_reason == "length" and preemptions(engine) == 0 and engine.trace[-2].used == 10
    assert_solo([fits])
    engine = run_all([too_long], blocks=10)
    assert isinstance(too_long.error, NeverFits) and (too_long.error.needs, too_long.error.has) == (11, 10)


@pytest.mark.parametrize("length", [BS - 1, BS, BS + 1, 2 * BS - 1, 2 * BS, 2 * BS + 1])
@pytest.mark.parametrize("blocks", [64, None], ids=["large pool", "exact pool"])
def test_pitfall_05_exactly_the_blocks_its_tokens_need(length: int, blocks: int | None) -> None:
    only = request(0, length, 2 * BS)
    engine = make_engine(blocks=blocks or -(-only.max_total // BS))
    stepper = Stepper(engine, [only])
    for computed in range(length, length + 2 * BS - 1):  # the prompt, then decodes across two boundaries
        stepper.step()
        assert only.num_computed == computed
        if only.status == "running":
            assert len(only.block_table) == -(-computed // BS) == engine.memory.counts().used
    stepper.run()
    assert preemptions(engine) == 0
    assert_solo([only])


def test_pitfall_06_a_double_free_raises() -> None:
    memory, held = PagedMemory(4, BS), Request(0, [1] * 8)
    memory.grow(held, 8)
    copy = list(held.block_table)
    memory.release(held)
    held.block_table = copy
    with pytest.raises(BlockError, match="freed twice"):
        memory.release(held)


@pytest.mark.parametrize("after", range(8))
def test_pitfall_06_abort_at_any_moment_leaves_the_books_balanced(after: int) -> None:
    requests = [request(id, 6, 4, arrival=id * 1e-3) for id in range(4)]
    engine = make_engine(blocks=5, chunking="budget:4", batching="continuous:3")
    stepper = Stepper(engine, requests)
    for _ in range(after):
        stepper.step()
    for each in requests[1:3]:
        engine.abort(each.id)
        engine.abort(each.id)
    stepper.run()
    assert_books_balance(engine)
    assert_solo([requests[0], requests[3]])


def test_pitfall_07_decode_with_room_needs_no_free_block() -> None:
    requests = [request(id, 2, 3) for id in range(3)]  # 2 + 3 - 1 = 4 tokens: one block each
    engine = make_engine(blocks=3)
    stepper = Stepper(engine, requests)
    for _ in range(2):
        assert stepper.step().free == 0
    stepper.run()
    assert preemptions(engine) == 0 and len(engine.trace) == 3
    assert_solo(requests)


def test_pitfall_07_and_a_decode_without_room_does_preempt() -> None:
    requests = [request(id, 2, 4) for id in range(3)]
    engine = run_all(requests, blocks=3)
    assert preemptions(engine) > 0
    assert_solo(requests)


def test_pitfall_08_reused_blocks_show_nothing_of_their_last_owner() -> None:
    requests = [request(id, 4 + id % 5, 1 + id % 6) for id in range(20)]
    engine = run_all(requests, blocks=3, batching="continuous:1")
    assert max(max(step.used for step in engine.trace), 2) <= 3
    assert len(engine.runner.slots) <= 3 * BS  # twenty requests went through twelve slots
    assert_solo(requests)


# -- chunking and token budget -------------------------------------------------------------------------------
@pytest.mark.parametrize("length", [BS - 1, BS, BS + 1, 2 * BS, 11])
@pytest.mark.parametrize("edge", ["1", "bs-1", "bs", "bs+1", "len-1", "len", "len+1"])
def test_pitfall_09_every_chunk_edge(length: int, edge: str) -> None:
    budget = {
        "1": 1,
        "bs-1": BS - 1,
        "bs": BS,
        "bs+1": BS + 1,
        "len-1": length - 1,
        "len": length,
        "len+1": length + 1,
    }
    only = request(0, length, 5)
    engine = run_all([only], chunking=f"budget:{budget[edge]}")
    chunks = -(-length // budget[edge])
    assert [step.sampled for step in engine.trace] == [0] * (chunks - 1) + [1] * 5  # an exact fit ends the prompt
    assert_solo([only])


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 100])
def test_pitfall_10_no_token_before_the_prompt_ends_and_no_empty_entry(budget: int) -> None:
    requests = [request(id, 5 + 4 * id, 3) for id in range(4)]
    engine = make_engine(chunking=f"budget:{budget}")
    steps = Stepper(engine, requests).run()  # which checks growth, budget and samples at every step
    seen: Counter[int] = Counter()
    for step in steps:
        assert step.computed <= budget
        for row in step.rows:
            assert row.num_tokens > 0
            assert row.start == seen[row.request]
            seen[row.request] += row.num_tokens
            assert row.sampled == (seen[row.request] >= requests[row.request].num_prompt) == (row.token is not None)
    assert_solo(requests)


@pytest.mark.parametrize("budget", [3, 7, 64])
def test_pitfall_13_resume_computes_prompt_and_output_again(budget: int) -> None:
    requests = [request(0, 6, 14), request(1, 6, 14)]
    engine = make_engine(blocks=6, chunking=f"budget:{budget}")
    stepper = Stepper(engine, requests)
    while requests[1].status != "preempted":
        stepper.step()
    kept = list(requests[1].output)
    assert kept and requests[1].num_computed == 0 and requests[1].remaining == 6 + len(kept)
    stepper.run()
    assert requests[1].output[: len(kept)] == kept and len(requests[1].output) == 14
    assert requests[1].num_output == 14
    assert_solo(requests)


def test_pitfall_14_no_thrash() -> None:
    requests = [request(id, 6, 14, arrival=id * 1e-6) for id in range(5)]
    engine = make_engine(blocks=6, chunking="budget:8")
    stepper = Stepper(engine, requests)
    output_at_admission: dict[int, int] = {}
    while not engine.idle:
        step = stepper.step()
        for event in step.events:
            if event.kind == "admitted":
                output_at_admission[event.request] = engine.requests[event.request].num_output
            if event.kind == "preempted":
                gained = engine.requests[event.request].num_output - output_at_admission[event.request]
                assert gained >= 1, "taken back and thrown out again without a token"
    assert 0 < preemptions(engine) <= 2 * len(requests)
    assert requests[0].num_preemptions == 0
    assert_solo(requests)


def test_pitfall_15_chunked_prompts_go_on_without_a_prefix_cache() -> None:
    requests = [request(0, 50, 2), request(1, 50, 2)]
    engine = run_all(requests, chunking="budget:8", prefix_cache="none")
    assert [step.computed for step in engine.trace][:12] == [8] * 12
    assert_solo(requests)


def test_pitfall_15_a_full_batch_is_not_remembered() -> None:
    requests = [request(id, 3, 2 + id) for id in range(5)]
    stepper = Stepper(make_engine(batching="continuous:2"), requests)
    while not stepper.engine.idle:
        step = stepper.step()
        waiting = sum(each.status == "waiting" for each in requests)
        assert len(step.rows) == 2 or waiting == 0
    assert_solo(requests)


# -- static batches, stop conditions -------------------------------------------------------------------------
def test_pitfall_28_finished_rows_are_frozen() -> None:
    tokens = solo(list(request(0, 6).prompt), SamplingParams(max_tokens=9), frozenset())
    requests = [request(0, 6, 9), request(1, 4, 12, ignore_eos=True)]
    engine = make_engine(batching="static:2", eos=[tokens[2]])
    steps = Stepper(engine, requests).run()
    assert requests[0].output == tokens[:3] and requests[0].finish_reason == "stop"
    rows = [row for step in steps for row in step.rows if row.request == 0]
    assert len(rows) == 12 and [row.token for row in rows] == tokens[:3] + [None] * 9
    assert all(row.margin is None and not row.sampled and row.num_tokens == 0 for row in rows[3:])
    assert sum(row.padding for row in rows[3:]) == 9  # and paid for
    assert_solo(requests[1:])


def test_pitfall_28_padding_writes_into_no_block() -> None:
    requests = [request(0, 3, 2), request(1, 11, 2)]
    engine = run_all(requests, batching="static:2")
    assert sum(step.padded for step in engine.trace) == 8
    assert engine.runner.computed == 3 + 11 + 2
    assert_solo(requests)


@pytest.mark.parametrize("axes", [dict(), dict(batching="static:3"), dict(chunking="budget:2")], ids=str)
def test_pitfall_29_stop_conditions_are_exact(axes: dict) -> None:
    tokens = {id: solo(list(request(id, 5).prompt), SamplingParams(max_tokens=9), frozenset()) for id in range(4)}
    eos = [tokens[0][0], tokens[1][3], tokens[1][5]]  # the first token of 0; two ids that 1 would reach
    requests = [request(0, 5, 9), request(1, 5, 9), request(2, 5, 1), request(3, 5, 9)]
    run_all(requests, eos=eos, **axes)
    assert requests[0].output == tokens[0][:1] and requests[0].finish_reason == "stop"
    assert requests[1].output == tokens[1][:4] and requests[1].finish_reason == "stop"
    assert requests[2].output == tokens[2][:1] and requests[2].finish_reason == "length"
    assert requests[3].output == tokens[3] and requests[3].finish_reason == "length"
