"""The block map: it agrees with the memory's own books, stays small, and costs little."""

from __future__ import annotations

import json
import random
from array import array
from types import SimpleNamespace

import pytest
from oracles import HashModel
from test_live_session import work

from lab.live.blocks import MAX_CELLS, Holding, Share, blocks_of, cells, holding, runs_of, wire
from lab.live.film import Film
from lab.running import build_engine
from lab.workload import fixed_workload


def few_shot(requests: int = 12):
    """Requests that share two beginnings of three blocks."""
    draw = random.Random(3)
    heads = [tuple(draw.randrange(1000) for _ in range(48)) for _ in range(2)]
    prompts = [heads[i % 2] + tuple(draw.randrange(1000) for _ in range(draw.randint(3, 20))) for i in range(requests)]
    return fixed_workload(prompts, [draw.randint(4, 20) for _ in prompts], [0.0] * requests)


def engine_of(load, **options):
    engine = build_engine(HashModel(), **options)
    for request in load.requests(HashModel()):
        engine.submit(request)
    return engine


@pytest.mark.parametrize(
    "options",
    [
        dict(batching="continuous:4", prefix_cache="radix", blocks=64),
        dict(batching="continuous:4", prefix_cache="hash", blocks=24),
        dict(batching="continuous:8", blocks=12),
        dict(batching="continuous:4", memory="reserved:pow2", blocks=64),
        dict(batching="static:4", blocks=64),
    ],
)
def test_the_map_agrees_with_the_books_after_every_step(options):
    engine, now, shared = engine_of(few_shot(), **options), 0.0, 0
    for index in range(400):
        step = engine.step(now)
        if step is None:
            break
        now = step.end
        frame = holding(engine, index)
        counts = frame.counts()
        assert (counts["free"], counts["cached"]) == (step.free, step.cached)
        assert counts["own"] + counts["shared"] == step.used
        for share in frame.shares:
            assert list(blocks_of(share.runs)) == engine.requests[share.request].block_table
            assert share.computed == engine.requests[share.request].num_computed
        shared += counts["shared"]
    assert engine.idle and (shared > 0) == ("prefix_cache" in options)


def test_runs_keep_the_order_of_a_table():
    assert list(runs_of([5, 6, 7, 2, 3, 9])) == [5, 3, 2, 2, 9, 1]
    assert list(blocks_of(runs_of([4, 3, 8]))) == [4, 3, 8]


def holding_of(num_blocks, shares, cached=()):
    found = tuple(Share(request, computed, runs_of(blocks)) for request, computed, blocks in shares)
    return Holding(0, num_blocks, 16, found, runs_of(cached))


def test_what_has_not_changed_is_not_sent_again():
    known: dict = {}
    first = wire(holding_of(32, [(3, 20, [0, 1]), (5, 4, [2])], [7]), known)
    assert first["held"] == [[3, 20, [0, 2]], [5, 4, [2, 1]]] and first["cached"] == [7, 1]
    assert first["counts"] == {"own": 3, "shared": 0, "cached": 1, "free": 28}
    second = wire(holding_of(32, [(3, 21, [0, 1]), (5, 17, [2, 9])]), known)
    assert second["held"] == [[3, 21, None], [5, 17, [2, 1, 9, 1]]]
    assert wire(holding_of(32, [(3, 21, [0, 1])]))["held"] == [[3, 21, [0, 2]]]


def test_a_large_pool_is_summed_up_and_stays_small_on_the_wire():
    """65,536 blocks in the worst order: every block of a request lies apart."""
    draw = random.Random(0)
    blocks = draw.sample(range(65_536), 48_000)
    shares = [(request, 4800, blocks[300 * request : 300 * request + 300]) for request in range(160)]
    frame = holding_of(65_536, shares, sorted(set(range(65_536)) - set(blocks))[:9000])
    sent = wire(frame)
    assert len(json.dumps(sent)) < 150_000 and "held" not in sent
    assert sent["per"] == 16 and sum(cell[0] for cell in sent["cells"]) == MAX_CELLS
    sums = [sum(cell[0] * cell[place] for cell in sent["cells"]) for place in (1, 2, 3)]
    assert sums == [48_000, 0, 9000] == [frame.counts()[name] for name in ("own", "shared", "cached")]


def test_cells_name_the_request_with_most_blocks():
    frame = holding_of(2 * MAX_CELLS, [(4, 16, [0]), (9, 16, [2, 3, 4]), (8, 16, [4])])
    assert cells(frame)["cells"] == [[1, 1, 0, 0, 4], [1, 2, 0, 0, 9], [1, 0, 1, 0, 9], [MAX_CELLS - 3, 0, 0, 0, -1]]


def standing(blocks):
    """An engine whose only request holds these blocks."""
    request = SimpleNamespace(id=1, num_computed=len(blocks), block_table=blocks)
    memory = SimpleNamespace(num_blocks=1000, block_size=16)
    return SimpleNamespace(memory=memory, scheduler=SimpleNamespace(running=[request]))


def test_a_film_forgets_every_second_picture_and_finds_the_one_before():
    film = Film(limit=3000, patience=0)
    for index in range(1000):
        film.take(standing(list(range(10))), index)
    assert film.latest.index == 999 and film.at(999) is film.latest
    assert len(film) * film.latest.size <= 3000 and len(film) > 30
    indices = [film.at(index).index for index in range(900, 1000)]
    assert all(index <= at for index, at in zip(indices, range(900, 1000), strict=True))
    assert indices == sorted(indices) and film.at(-1) is None


def test_a_film_waits_for_as_long_as_a_picture_costs():
    film = Film(patience=1e9)
    film.take(standing([1]), 0)
    film.take(standing([1]), 1)
    assert len(film) == 1
    film.take(standing([1]), 1, whatever_it_costs=True)
    film.take(standing([1, 2]), 1, whatever_it_costs=True)
    assert len(film) == 2 and list(film.at(1).shares[0].runs) == [1, 2]


def test_a_step_under_way_is_shown_but_not_kept():
    film = Film(patience=0)
    film.take(standing([1]), 4)
    film.peek(standing([1, 2]), 5)
    assert (film.latest.index, film.latest.under_way, film.latest.counts()["own"]) == (5, True, 2)
    assert len(film) == 1 and film.at(5).index == 4 and not film.at(5).under_way


def test_before_the_first_step_nothing_is_held():
    frame = holding(engine_of(work(2), batching="continuous:4", blocks=64), -1)
    assert frame.counts() == {"own": 0, "shared": 0, "cached": 0, "free": 64} and frame.cached == array("i")
