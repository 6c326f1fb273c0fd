"""What lies between the matrix products: compiled and plain versions agree, row by row whatever the batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lab.execution import elementwise
from lab.execution.config import ModelConfig
from lab.execution.kv_cache import PagedKV
from lab.execution.rope import rotation
from lab.execution.tiny import make

ROWS = (1, 3, 31, 32, 33, 100)


@pytest.fixture
def plain(monkeypatch):
    """Calls a function of the module without the compiled kernels."""

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(elementwise, "_compiled", lambda x: False)
            return function(*arguments)

    return call


def random(*shape, seed=0, scale=1.0):
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("hidden", [576, 33])
def test_norm(plain, rows, hidden):
    x, weight = random(rows, hidden, scale=5.0), random(hidden, seed=1)
    assert torch.allclose(elementwise.norm(x, weight, 1e-5), plain(elementwise.norm, x, weight, 1e-5), atol=1e-5)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("wide", [1536, 7])
def test_gated(plain, rows, wide):
    both = random(rows, 2 * wide, scale=6.0)
    both[0, 0], both[0, wide - 1] = 200.0, -200.0  # e^200 is no float32
    assert torch.allclose(elementwise.gated(both), plain(elementwise.gated, both), atol=1e-4, rtol=1e-5)


def cache_of(config: ModelConfig, turned: bool) -> PagedKV:
    """A small pool."""
    return PagedKV(config, 20, 8, turned=turned)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("turned", [True, False], ids=["keys turned", "keys as usual"])
def test_place_is_the_same_to_the_bit(plain, rows, turned):
    config, _ = make()
    kv, dim, heads = config.num_kv_heads, config.head_dim, config.num_heads
    both = random(rows, heads + 2 * kv, dim)
    where = torch.randperm(20 * 8, generator=torch.Generator().manual_seed(2))[:rows]
    inputs = SimpleNamespace(blocks=where // 8, slots=where % 8)
    angles = rotation(torch.arange(rows) * 7, torch.rand(dim // 2))
    ours, theirs = cache_of(config, turned), cache_of(config, turned)
    queries = elementwise.place(both, angles, ours, 1, inputs)
    assert torch.equal(queries, plain(elementwise.place, both, angles, theirs, 1, inputs))
    assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)
    assert ours.keys[1].abs().sum() > 0 and ours.keys[0].abs().sum() == 0


@pytest.mark.parametrize("function", ["norm", "gated"])
def test_a_row_does_not_depend_on_its_neighbours(function):
    x = random(100, 64, scale=3.0)
    call = (lambda rows: elementwise.norm(rows, random(64, seed=3), 1e-5)) if function == "norm" else elementwise.gated
    whole = call(x)
    for first, last in ((0, 1), (5, 37), (64, 100)):
        assert torch.equal(call(x[first:last]), whole[first:last])


def test_the_compiled_versions_are_used_for_float32_on_the_cpu_only(monkeypatch):
    assert elementwise._compiled(torch.zeros(1))
    assert not elementwise._compiled(torch.zeros(1, dtype=torch.float16))
    monkeypatch.setattr(elementwise, "kernels", lambda: None)
    assert not elementwise._compiled(torch.zeros(1))


def test_the_best_two_scores_are_those_of_a_sort(plain):
    scores = random(40, 5000, seed=9)
    ids, values = elementwise.best_two(scores.clone())
    best, order = scores.topk(2)
    assert torch.equal(ids, order[:, 0]) and torch.equal(values, best)
    assert all(map(torch.equal, (ids, values), plain(elementwise.best_two, scores.clone())))


@pytest.mark.parametrize("wide", [1, 2, 15, 2048, 2049, 4097])
def test_the_first_of_equal_scores_wins_and_has_no_margin(plain, wide):
    scores = torch.full((3, wide), -1.0)
    scores[1, wide // 2 :] = 3.0  # from the middle on all are equal
    scores[2, : wide - 1] = float("-inf")  # only the last is possible
    ids, values = elementwise.best_two(scores.clone())
    assert ids.tolist() == [0, wide // 2, wide - 1]
    one = wide == 1
    assert values[0, 0] == -1 and values[0, 1] == (float("-inf") if one else -1)
    assert values[1, 1] == (3 if wide - wide // 2 > 1 else -1 if not one else float("-inf"))
    assert values[2].tolist() == [-1, float("-inf")]
    assert all(map(torch.equal, (ids, values), plain(elementwise.best_two, scores.clone())))


def test_scores_that_are_no_numbers_give_some_token_of_the_vocabulary():
    ids, _ = elementwise.best_two(torch.full((2, 3000), float("nan")))
    assert ids.tolist() == [0, 0]
