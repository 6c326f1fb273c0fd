"""Contiguous reservation: sizes, fragmentation, books."""

from __future__ import annotations

import pytest
from oracles import HashModel, assert_books_balance, make_requests, solo

from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy, NeverFits
from lab.memory.reserved import ReservedMemory
from lab.metrics import Report
from lab.request import Request, SamplingParams
from lab.running import build_engine


def request(id: int, prompt: int, output: int) -> Request:
    return Request(id, list(range(prompt)), SamplingParams(max_tokens=output))


@pytest.mark.parametrize(("kind", "blocks"), [("max", 128), ("pow2", 7), ("oracle", 5)])
def test_how_much_each_variant_reserves(kind: str, blocks: int) -> None:
    # 40 prompt and 33 output tokens in blocks of 16: 2048 tokens, 40 + 64 = 104, and 73
    assert ReservedMemory(1000, 16, kind).reserve(request(0, 40, 33)) == blocks


def test_free_blocks_in_two_holes_do_not_help() -> None:
    memory = ReservedMemory(10, 1, "oracle")
    first, second, third = request(0, 3, 1), request(1, 1, 1), request(2, 3, 1)
    for each in (first, second, third):
        memory.admit(each)
    memory.release(first)
    memory.release(third)
    assert memory.counts().free == 8
    assert not memory.can_admit(request(3, 4, 1), 0), "5 blocks: free, but in holes of 4"
    assert memory.can_admit(request(4, 3, 1), 0)


def test_neighbouring_holes_join() -> None:
    memory = ReservedMemory(9, 1, "oracle")
    requests = [request(i, 2, 1) for i in range(3)]
    for each in requests:
        memory.admit(each)
    assert memory.counts().free == 0
    memory.release(requests[0])
    memory.release(requests[2])
    memory.release(requests[1])
    assert memory._holes == [(0, 9)]
    memory.check([])


def test_what_cannot_be_reserved_is_refused() -> None:
    with pytest.raises(NeverFits, match="needs 128 blocks, the most this engine can give is 100"):
        ReservedMemory(100, 16, "max").check_fits(request(0, 4, 4))
    with pytest.raises(BadPolicy, match="reserved memory 'half' is not known"):
        ReservedMemory(100, 16, "half")
    with pytest.raises(BadPolicy, match="contiguous"):
        build_engine(HashModel(), memory="reserved:max", prefix_cache="radix")


def test_the_paper_s_order_of_waste() -> None:
    """Orca-Max wastes most, then Pow2, then Oracle, and paging only the end of each last block."""
    waste, peak = {}, {}
    specs = [(40 + 13 * i % 90, 20 + 29 * i % 100) for i in range(24)]
    for memory in ("reserved:max", "reserved:pow2", "reserved:oracle", "paged"):
        requests = make_requests(specs)
        engine = build_engine(HashModel(frozenset()), requests, blocks=512, memory=memory, batching="continuous:64")
        engine.check_every_step = True
        trace = Driver(engine, requests, VirtualClock()).run()
        assert [r.output for r in requests] == [solo(r.prompt, r.sampling, frozenset()) for r in requests]
        assert_books_balance(engine)
        waste[memory] = Report.from_trace(trace).kv_waste
        peak[memory] = max(len(step.rows) for step in trace)
    assert waste["reserved:max"] > waste["reserved:pow2"] > waste["reserved:oracle"] > waste["paged"]
    assert waste["paged"] < 0.15 and waste["reserved:max"] > 0.9
    assert peak["reserved:max"] == 4 and peak["paged"] == 24
