"""Sampling is stateless: a token's noise depends on seed, request and position alone (pitfall 32)."""

from __future__ import annotations

import pytest
import torch

from lab.execution import sampling
from lab.execution.sampling import gumbel_noise, keep_likely, sample
from lab.plan import Row
from lab.request import Request, SamplingParams

WARM = dict(temperature=1.0, seed=5)


def row(id: int, position: int = 3, **sampling) -> Row:
    return Row(Request(id, [1] * position, SamplingParams(**sampling)), 0, position, True)


def test_temperature_zero_takes_the_largest_and_its_margin():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, -1.0, 1.5]])
    result = sample(logits, [row(0), row(1)])
    assert result.tokens == [1, 0]
    assert result.margins == [2.0, 0.5]


def test_a_tie_has_margin_zero():
    assert sample(torch.tensor([[1.0, 4.0, 4.0]]), [row(0)]).margins == [0.0]


def test_order_and_company_do_not_matter():
    torch.manual_seed(0)
    logits = torch.randn(6, 300)
    rows = [
        row(i, position=3 + i % 2, temperature=0.5 + 0.2 * i, seed=i % 3, top_p=1 - 0.1 * (i % 2)) for i in range(6)
    ]
    together = sample(logits.clone(), rows).tokens
    backwards = sample(logits.flip(0), rows[::-1]).tokens[::-1]
    alone = [sample(logits[i : i + 1].clone(), [rows[i]]).tokens[0] for i in range(6)]
    assert together == backwards == alone


def test_noise_differs_by_seed_request_and_position_and_by_nothing_else():
    base = gumbel_noise(1000, seed=1, request_id=2, position=3)
    assert torch.equal(base, gumbel_noise(1000, 1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (-1, 2, 3), (-2, 2, 3), (2, 1, 3)):
        noise = gumbel_noise(1000, *other)
        assert (noise == base).sum() < 5
        assert torch.corrcoef(torch.stack([base, noise]))[0, 1].abs() < 0.15
    assert not torch.equal(gumbel_noise(1000, -1, 2, 3), gumbel_noise(1000, -2, 2, 3))  # large keys stay exact


def test_draws_follow_the_softmax():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    draws = sample(logits.repeat(8000, 1), [row(i, **WARM) for i in range(8000)]).tokens
    shares = torch.bincount(torch.tensor(draws), minlength=4) / 8000
    assert (shares - logits.softmax(0)).abs().max() < 0.02  # four standard deviations


def test_a_low_temperature_is_nearly_greedy_and_a_high_one_nearly_uniform():
    logits = torch.tensor([1.0, 2.0, 0.0])
    cold = sample(logits.repeat(200, 1), [row(i, temperature=0.01) for i in range(200)]).tokens
    hot = sample(logits.repeat(3000, 1), [row(i, temperature=100.0) for i in range(3000)]).tokens
    assert set(cold) == {1}
    assert (torch.bincount(torch.tensor(hot)) / 3000 - 1 / 3).abs().max() < 0.05


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (0, 1.0, {0, 1, 2, 3}),
        (2, 1.0, {1, 3}),
        (9, 1.0, {0, 1, 2, 3}),
        (0, 0.5, {1}),
        (0, 0.6, {1, 3}),
        (0, 0.95, {0, 1, 3}),
        (0, 1e-6, {1}),
        (2, 0.99, {1, 3}),
        (2, 0.6, {1}),  # of the two that are left, the first holds 62 %
    ],
)
def test_top_k_and_top_p_keep_the_smallest_sufficient_set(top_k, top_p, kept):
    scores = torch.tensor([0.16, 0.5, 0.04, 0.3]).log()
    result = keep_likely(scores, top_k, top_p)
    assert {i for i in range(4) if result[i] > float("-inf")} == kept
    assert torch.equal(result[list(kept)], scores[list(kept)])


def test_a_gpu_sorts_everything_and_keeps_the_same_set(monkeypatch):
    """Only the choice of what to sort depends on the device, so it can be tested on the CPU."""
    torch.manual_seed(2)
    scores = 3 * torch.randn(1000)
    for top_p in (1e-6, 0.3, 0.9, 0.999):
        wanted = keep_likely(scores, 0, top_p)
        with monkeypatch.context() as patch:
            patch.setattr(sampling, "candidates", lambda probabilities, top_p: torch.arange(len(probabilities)))
            assert torch.equal(keep_likely(scores, 0, top_p), wanted)


def test_half_precision_logits_are_sampled_in_float32():
    """A margin of half a bfloat16 step at 1.0, and an id that no half-precision number holds."""
    logits = torch.zeros(1, 70_001, dtype=torch.bfloat16)
    logits[0, 69_999], logits[0, 3] = 1.0078125, 1.0
    result = sample(logits, [row(0)])
    assert result.tokens == [69_999]
    assert result.margins == [0.0078125]


def test_only_likely_tokens_are_drawn():
    torch.manual_seed(1)
    logits = torch.randn(1, 500).repeat(300, 1)
    best = set(logits[0].topk(5).indices.tolist())
    draws = sample(logits.clone(), [row(i, top_k=5, **WARM) for i in range(300)]).tokens
    assert set(draws) <= best and len(set(draws)) > 1


def test_sampled_tokens_do_not_depend_on_batch_or_chunking(tiny, drive, random_prompt):
    prompts = [random_prompt(length, length) for length in (9, 30, 17)]
    options = dict(temperature=0.8, top_p=0.9, seed=11)
    together = drive(tiny).generate(prompts, 12, **options)
    assert drive(tiny, "padded").generate(prompts, 12, chunk=7, **options) == together
    assert drive(tiny).generate(prompts[:1], 12, **options) == together[:1]
    assert drive(tiny).generate(prompts, 12, **{**options, "seed": 12}) != together
