"""Shapes against the parameter counts their publishers state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.errors import BadPolicy, UnknownName
from lab.simulation.shapes import model_shape, table

#: Sums of the tensors in the published checkpoints (model cards and safetensors indices), biases and norms included.
EXACT = {
    "smollm2-135m": 134_515_008,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "mistral-7b": 7_241_732_096,
    "yi-34b": 34_388_917_248,
}
#: OPT (arXiv:2205.01068) names its models by rounded counts.
ROUNDED = {"opt-13b": 13e9, "opt-66b": 66e9, "opt-175b": 175e9, "qwen3-32b": 32.8e9}


@pytest.mark.parametrize("name", EXACT)
def test_parameter_counts_are_those_published(name: str) -> None:
    assert model_shape(name).parameters == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameter_counts_round_to_the_models_names(name: str) -> None:
    assert model_shape(name).parameters == pytest.approx(ROUNDED[name], rel=0.015)


def test_every_shape_names_its_source_and_every_gqa_group_is_whole() -> None:
    for shape in table().values():
        assert shape.source and shape.heads % shape.kv_heads == 0
        assert shape.query_size == shape.hidden or shape.qk_norm  # Qwen3's heads are wider than its hidden state


@pytest.mark.parametrize(
    "name, kilobytes",
    # 2 · layers · kv heads · head size · 2 bytes; OPT-13B's 800 KB are in the vLLM paper (arXiv:2309.06180, section 3)
    [("opt-13b", 800), ("llama-2-7b", 512), ("llama-3-8b", 128), ("llama-3-70b", 320)],
)
def test_keys_and_values_of_one_token(name: str, kilobytes: int) -> None:
    assert 2 * model_shape(name).kv_numbers_per_token == kilobytes * 1024


def test_names_are_found_whatever_their_case_and_suggested_when_wrong() -> None:
    assert model_shape(" Llama-3-8B ") is model_shape("llama-3-8b")
    with pytest.raises(UnknownName, match="'lama3-8b' is not known; did you mean llama-3-8b"):
        model_shape("lama3-8b")
    with pytest.raises(UnknownName, match="there are llama-2-13b, "):
        model_shape("gpt-9-enormous")
    with pytest.raises(UnknownName, match="model 7 is not known"):
        model_shape(7)


def test_shapes_that_make_no_model_are_refused() -> None:
    shape = model_shape("llama-3-8b")
    assert model_shape(shape) is shape
    with pytest.raises(BadPolicy, match="layers of 0"):
        replace(shape, layers=0)
    with pytest.raises(BadPolicy, match="32 heads over 5 kv_heads"):
        replace(shape, kv_heads=5)
    with pytest.raises(BadPolicy, match="biases 'some'"):
        replace(shape, biases="some")
