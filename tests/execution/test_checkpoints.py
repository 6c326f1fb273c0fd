"""Loading: the same logits as transformers in float32, and clear refusals."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.errors import ModelError
from lab.execution.config import read_config
from lab.execution.model import load_model
from lab.execution.weights import load_checkpoint

LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=1e4,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
ONE = torch.ones(1)
KINDS = ["gqa", "mha", "untied", "head_dim", "theta"]


def reference_logits(folder, prompts):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return [model(torch.tensor([prompt])).logits[0] for prompt in prompts]


@pytest.mark.parametrize("kind", KINDS)
def test_small_llamas_agree_with_transformers(kind, llama_folder, prompt_logits, random_prompt):
    folder = llama_folder(kind)
    model = load_model(folder)
    prompts = [random_prompt(length, seed, model.config.vocab_size) for seed, length in enumerate((1, 17, 60))]
    for prompt, wanted in zip(prompts, reference_logits(folder, prompts), strict=True):
        assert (prompt_logits(model, prompt) - wanted).abs().max() < 1e-3


def test_default_model_agrees_with_transformers(real_folder, real, prompt_logits, random_prompt):
    prompts = [random_prompt(length, seed, real.config.vocab_size) for seed, length in enumerate((1, 16, 90))]
    prompts.append(real.tokenizer.encode_chat("What is the capital of France?"))
    for prompt, wanted in zip(prompts, reference_logits(real_folder, prompts), strict=True):
        got = prompt_logits(real, prompt)
        assert (got - wanted).abs().max() < 1e-3
        assert torch.equal(got[-1].argmax(), wanted[-1].argmax())


def test_default_model_knows_its_size(real):
    assert real.num_parameters == 134_515_008
    assert real.kv_bytes_per_token == 2 * 30 * 3 * 64 * 4
    assert real.max_context == 8192
    assert real.eos_token_ids == (2,)


def test_sharded_and_half_precision_checkpoints_load(llama_folder, prompt_logits, random_prompt):
    whole = llama_folder("gqa")
    sharded = llama_folder("gqa", max_shard_size="40KB")
    assert (sharded / "model.safetensors.index.json").is_file()
    prompt = random_prompt(20)
    wanted = prompt_logits(load_model(whole), prompt)
    assert torch.equal(prompt_logits(load_model(sharded), prompt), wanted)

    tensors = load_file(whole / "model.safetensors")
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, whole / "model.safetensors")
    _, halves = load_checkpoint(whole)
    assert {tensor.dtype for tensor in halves.values()} == {torch.float32}


@pytest.fixture
def folder(llama_folder, tmp_path):
    return shutil.copytree(llama_folder("gqa"), tmp_path / "model")


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_missing_tensor_is_named(folder):
    edit_tensors(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"lacks tensor model\.layers\.1\.mlp\.up_proj\.weight \[80, 48\]"):
        load_model(folder)


def test_a_wrong_shape_is_named_with_both_shapes(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(47)}))
    with pytest.raises(ModelError, match=r"model\.norm\.weight has shape \[47\].*asks for \[48\]"):
        load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(folder, value):
    def damage(tensors):
        tensors["model.layers.0.mlp.down_proj.weight"][3, 4] = value

    edit_tensors(folder, damage)
    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.down_proj\.weight holds numbers that are not finite in"):
        load_model(folder)


def test_a_weight_too_large_for_float16_is_named(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.full((48,), 1e5)}))
    assert load_model(folder, dtype="bfloat16").weights.final_norm.dtype == torch.bfloat16
    with pytest.raises(ModelError, match=r"model\.norm\.weight holds numbers that are not finite in float16: .* dtype"):
        load_model(folder, dtype="float16")


def test_weights_larger_than_the_machine_are_refused_before_they_are_read(folder):
    edit_config(folder, vocab_size=2_000_000_000)
    with pytest.raises(ModelError, match=r"the weights of model \(.* GiB\): .* take a smaller model or a shorter"):
        load_model(folder)


def test_an_index_without_a_tensor_is_named(llama_folder, tmp_path):
    folder = shutil.copytree(llama_folder("gqa", max_shard_size="40KB"), tmp_path / "model")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"].pop("model.norm.weight")
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"lacks tensor model\.norm\.weight"):
        load_model(folder)
    (folder / sorted(set(index["weight_map"].values()))[0]).unlink()
    index["weight_map"]["model.norm.weight"] = "gone.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError, match="cannot read"):
        load_model(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(architectures=["GPT2LMHeadModel"]), "is a GPT2LMHeadModel"),
        (dict(mlp_bias=True), "biases in the MLP"),
        (dict(hidden_act="gelu"), "activation 'gelu'"),
        (dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0)), "rope type 'yarn'"),
        (dict(rope_parameters=dict(rope_type="llama3", rope_theta=1e4)), "config.json lacks 'factor'"),
        (dict(rope_parameters="fast"), "is 'fast'; it must be an object"),
        (dict(hidden_size="wide"), "hidden_size of 'wide'; it must be a whole number"),
        (dict(num_key_value_heads=3), "must be a multiple"),
        (dict(num_key_value_heads=-1), "num_key_value_heads of -1; it must be at least 1"),
        (dict(num_attention_heads=0), "num_attention_heads of 0; it must be at least 1"),
        (dict(num_attention_heads=2.5), "num_attention_heads of 2.5; it must be a whole number"),
        (dict(num_hidden_layers=math.inf), "num_hidden_layers of inf; it must be a whole number"),
        (dict(num_hidden_layers=10_000_000), "num_hidden_layers of 10,000,000; it must be at most 10,000"),
        (dict(vocab_size=10**400), "vocab_size of 1.*; it must be at most"),
        (dict(num_hidden_layers=3), r"lacks tensor model\.layers\.2\."),
        (dict(rms_norm_eps=math.nan), "rms_norm_eps of nan; it must be a finite number"),
        (dict(rms_norm_eps=0), "rms_norm_eps of 0; it must be above 0"),
        (dict(rms_norm_eps=-1e-5), "rms_norm_eps of -1e-05; it must be"),
        (dict(rope_parameters=dict(rope_theta=0)), "rope_theta of 0; it must be above 0"),
        (dict(rope_theta=-1e4), "rope_theta of -10000.0; it must be"),
        (dict(rope_theta=10**400), "a number that is too large"),
        (dict(rope_parameters=LLAMA3 | dict(factor=0.0)), "scaling's factor of 0.0; it must be above 0"),
        (dict(rope_parameters=LLAMA3 | dict(factor=-8.0)), "scaling's factor of -8.0; it must be"),
        (dict(rope_parameters=LLAMA3 | dict(high_freq_factor=1.0)), "high_freq_factor of 1.0; it must be above low_fr"),
        (dict(rope_parameters=LLAMA3 | dict(original_max_position_embeddings=math.nan)), "embeddings of nan"),
        (dict(rope_parameters=dict(full_attention=dict(rope_theta=1e4))), "a rotation for each kind of layer"),
        (dict(quantization_config=dict(quant_method="awq", bits=4)), r"needs quantised weights \(awq\)"),
        (dict(quantization_config=dict(bits=4)), r"needs quantised weights \(of an unnamed method\)"),
        (dict(layer_types=["full_attention", "linear_attention"]), "needs layers of linear_attention"),
        (dict(layer_types=["sliding_attention"] * 2), "sliding_attention, and no sliding_window"),
        (dict(layer_types=["sliding_attention"] * 2, sliding_window=8), "a sliding window of 8 in a context of 2048"),
        (dict(layer_types=["sliding_attention"] * 2, sliding_window=math.nan), "sliding_window of nan; it must be"),
    ],
)
def test_what_is_not_computed_is_refused(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_an_architecture_may_be_a_string(folder):
    wanted = read_config(folder)
    edit_config(folder, architectures="LlamaForCausalLM")
    assert read_config(folder) == wanted
    edit_config(folder, architectures="GPT2LMHeadModel")
    with pytest.raises(ModelError, match="is a GPT2LMHeadModel; this engine"):
        read_config(folder)


def test_a_window_as_wide_as_the_context_is_none(folder):
    wanted = read_config(folder)
    edit_config(folder, layer_types=["full_attention", "sliding_attention"], sliding_window=2048)
    assert read_config(folder) == wanted


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn])
def test_numbers_that_need_a_scale_are_refused(folder, dtype):
    name = "model.layers.0.mlp.up_proj.weight"
    edit_tensors(folder, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(ModelError, match=rf"tensor model\.layers\.0\.mlp\.up_proj\.weight is stored as {kind}"):
        load_model(folder)


def test_longer_floats_load(folder, prompt_logits, random_prompt):
    wanted = prompt_logits(load_model(folder), random_prompt(9))
    edit_tensors(folder, lambda tensors: tensors.update({name: at.double() for name, at in tensors.items()}))
    assert torch.equal(prompt_logits(load_model(folder), random_prompt(9)), wanted)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.up_proj.weight_scale", "lm_head.weight"]
)
def test_a_tensor_that_is_left_over_is_named(folder, name):
    edit_config(folder, tie_word_embeddings=False)
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    edit_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": embedding.clone()}))
    load_model(folder)
    if name == "lm_head.weight":  # the head of a tied model is its embedding, and some files hold it all the same
        edit_config(folder, tie_word_embeddings=True)
        edit_tensors(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": ONE}))
        load_model(folder)
        return
    edit_tensors(folder, lambda tensors: tensors.update({name: ONE}))
    with pytest.raises(ModelError, match=f"model.safetensors holds {name}, one of 1 tensors .* makes no use of"):
        load_model(folder)


def test_layers_beyond_those_configured_are_named(folder, llama_folder, tmp_path):
    edit_config(folder, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"holds model\.layers\.1\.input_layernorm\.weight, one of 9 tensors"):
        load_model(folder)
    sharded = shutil.copytree(llama_folder("gqa", max_shard_size="40KB"), tmp_path / "sharded")
    edit_config(sharded, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"holds model\.layers\.1\."):
        load_model(sharded)


def test_an_index_of_another_shape_is_named(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": ["model.safetensors"]}))
    with pytest.raises(ModelError, match="its weight_map must name a file for each tensor"):
        load_model(folder)


def test_damaged_or_missing_files_are_named(folder, tmp_path):
    (folder / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match="cannot read .*model.safetensors"):
        load_model(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="neither model.safetensors nor"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="no config.json"):
        load_model(folder)
    with pytest.raises(ModelError, match="--setup-only"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="--setup-only"):
        load_model("no-such-model")


def test_a_folder_without_tokenizer_runs_on_token_ids(folder, drive):
    model = load_model(folder)
    assert len(drive(model).generate([[5, 6, 7]], 3)[0]) == 3
    for call in (model.tokenizer.encode, model.tokenizer.encode_chat, model.tokenizer.decode):
        with pytest.raises(ModelError, match="no tokenizer.json"):
            call("text")
