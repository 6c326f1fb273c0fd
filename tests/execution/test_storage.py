"""Weights stored as float16: other logits, by a measured and small amount, and never by default."""

from __future__ import annotations

import pytest
import torch

import lab
from lab.errors import BadRequest, ModelError
from lab.execution.storage import prompt_logits, storage_difference


def test_the_difference_of_rounded_weights_is_measured(random_prompt):
    prompts = [random_prompt(40, seed) for seed in range(3)]
    found = storage_difference("tiny", prompts)
    both = [lab.load_model("tiny", storage=storage) for storage in ("fp32", "fp16")]
    wanted, got = (torch.cat([prompt_logits(model, prompt) for prompt in prompts]) for model in both)
    assert found.positions == 120
    assert found.largest == float((wanted - got).abs().max()) > found.mean > 0
    assert found.same_next_token == float((wanted.argmax(-1) == got.argmax(-1)).float().mean())
    assert 0 <= found.smallest_margin


def test_the_default_model_moves_little(real):
    """Eleven bits of mantissa: measured at 0.02 to 0.05 for prompts like these (float32 paths differ by 4e-4)."""
    found = storage_difference(prompts=["What is the capital of France?"])
    assert 1e-3 < found.largest < 0.2
    assert found.same_next_token > 0.9


def test_the_default_stores_float32(tiny):
    assert tiny.storage == "fp32" and lab.load_model("tiny", storage="fp16").storage == "fp16"


@pytest.mark.parametrize("prompts", [[], [[]], [[1, 2], []]])
def test_nothing_to_compare_is_refused(prompts):
    with pytest.raises(BadRequest, match="prompts"):
        storage_difference("tiny", prompts)


def test_models_that_are_loaded_already_are_compared_as_they_are():
    exact, rounded = (lab.load_model("tiny", storage=storage) for storage in ("fp32", "fp16"))
    assert storage_difference(prompts=[[1, 2, 3]], models=(exact, rounded)) == storage_difference("tiny", [[1, 2, 3]])
    with pytest.raises(ModelError, match="stored as fp16, .* as fp32"):
        storage_difference(prompts=[[1]], models=(rounded, exact))
