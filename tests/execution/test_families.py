"""Llama 3, Mistral, Qwen2 and Qwen3: logits and greedy tokens are those of transformers; what differs is refused."""

from __future__ import annotations

import json

import pytest
import torch

from lab.errors import ModelError
from lab.execution.config import RopeScaling, read_config
from lab.execution.model import load_model
from lab.execution.rope import stretch
from lab.execution.weights import expected_shapes

SIZES = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    initializer_range=0.3,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
FAMILIES = {
    "llama3": ("Llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=False)),
    "llama-biased": ("Llama", dict(attention_bias=True)),
    "mistral": ("Mistral", dict(sliding_window=None, head_dim=16)),
    "mistral-wide-window": ("Mistral", dict(sliding_window=512)),
    "qwen2": ("Qwen2", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen2-untied": ("Qwen2", dict(tie_word_embeddings=False, sliding_window=64, use_sliding_window=False)),
    "qwen3": ("Qwen3", dict(head_dim=32, tie_word_embeddings=True)),
    "qwen3-biased": ("Qwen3", dict(head_dim=16, attention_bias=True, tie_word_embeddings=False)),
}


def build(kind, folder, **save_options):
    """A random model of the family with no number at its initial 0 or 1, saved; returned as transformers has it."""
    import transformers

    family, options = FAMILIES[kind]
    torch.manual_seed(sum(kind.encode()))
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **options})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # norms begin at 1 and biases at 0, which would hide a mistake
                parameter.copy_(torch.randn_like(parameter) * 0.3 + ("norm" in name))
    model.save_pretrained(folder, **save_options)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = folder, build(kind, folder)
        return made[kind]

    return get


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("attention", ["paged_cpu", "sdpa"])
def test_logits_are_those_of_transformers(kind, attention, saved, prompt_logits, random_prompt):
    folder, theirs = saved(kind)
    ours = load_model(folder)
    for seed, (length, chunk) in enumerate([(1, None), (17, 5), (90, None), (90, 33)]):
        prompt = random_prompt(length, seed, SIZES["vocab_size"])
        with torch.inference_mode():
            wanted = theirs(torch.tensor([prompt])).logits[0]
        assert (prompt_logits(ours, prompt, attention, chunk) - wanted).abs().max() < 1e-3


@pytest.mark.parametrize("kind", FAMILIES)
def test_greedy_tokens_are_those_of_transformers(kind, saved, drive, random_prompt):
    folder, theirs = saved(kind)
    prompts = [random_prompt(length, seed, SIZES["vocab_size"]) for seed, length in enumerate((5, 33, 70))]
    wanted = []
    for prompt in prompts:
        ids = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None)
        wanted.append(ids[0, len(prompt) :].tolist())
    for attention, chunk in (("paged_cpu", None), ("sdpa", 16), ("padded", None)):
        assert drive(load_model(folder), attention).generate(prompts, 12, chunk) == wanted


def test_a_sharded_qwen_loads(tmp_path, saved, prompt_logits, random_prompt):
    whole, _ = saved("qwen2-untied")
    build("qwen2-untied", tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    prompt = random_prompt(20)
    assert torch.equal(prompt_logits(load_model(tmp_path), prompt), prompt_logits(load_model(whole), prompt))


@pytest.mark.parametrize("kind", FAMILIES)
def test_parameters_are_counted_as_transformers_counts_them(kind, saved):
    folder, theirs = saved(kind)
    ours = load_model(folder)
    assert ours.num_parameters == theirs.num_parameters()
    assert len(expected_shapes(ours.config)) == len(list(theirs.parameters()))


def test_the_older_way_to_write_rope_scaling(saved, tmp_path):
    """Llama 3.1's own config.json has rope_theta beside rope_scaling."""
    folder, _ = saved("llama3")
    raw = json.loads((folder / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    raw |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert read_config(tmp_path) == read_config(folder)
    assert read_config(tmp_path).rope_scaling == RopeScaling(8.0, 1.0, 4.0, 32.0)


def test_stretched_frequencies_keep_the_fast_and_slow_the_slow():
    """Turns within 100 positions: 10 (stays), 2 (mixed: a third of the way from 1 to 4), 0.5 (eight times slower)."""
    plain = 2 * torch.pi * torch.tensor([10.0, 2.0, 0.5]) / 100
    stretched = stretch(plain, RopeScaling(8.0, 1.0, 4.0, 100.0))
    assert torch.allclose(stretched / plain, torch.tensor([1.0, 1 / 3 + 2 / 3 / 8, 1 / 8]))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("mistral", dict(sliding_window=256), "a sliding window of 256 in a context of 512 tokens"),
        ("qwen2", dict(sliding_window=128, use_sliding_window=True), "a sliding window of 128 in a context of 512"),
        ("qwen3", dict(sliding_window=64, use_sliding_window=True), "a sliding window of 64"),
        (
            "qwen2",
            dict(layer_types=["full_attention", "sliding_attention"], sliding_window=64),
            "a sliding window of 64",
        ),
        ("llama3", dict(layer_types=["sliding_attention"] * 2, sliding_window=511), "a sliding window of 511"),
        ("qwen3", dict(quantization_config=dict(quant_method="fp8")), r"quantised weights \(fp8\)"),
        ("llama3", dict(partial_rotary_factor=0.5), "a part of each head"),
        ("qwen2", dict(architectures=["Qwen2MoeForCausalLM"]), "is a Qwen2MoeForCausalLM; .* Qwen2ForCausalLM"),
        ("llama3", dict(rope_parameters={**LLAMA3, "partial_rotary_factor": 0.5}), "a part of each head"),
    ],
)
def test_what_differs_is_refused_with_its_number(kind, changes, message, saved, tmp_path):
    folder, _ = saved(kind)
    raw = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, **changes}))
    with pytest.raises(ModelError, match=message):
        read_config(tmp_path)


def test_a_missing_bias_and_a_missing_norm_are_named(saved, tmp_path):
    from safetensors.torch import load_file, save_file

    for kind, name in (("qwen2", "self_attn.k_proj.bias"), ("qwen3", "self_attn.q_norm.weight")):
        folder, _ = saved(kind)
        tensors = load_file(folder / "model.safetensors")
        tensors.pop(f"model.layers.1.{name}")
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(ModelError, match=rf"lacks tensor model\.layers\.1\.{name}"):
            load_model(tmp_path)
