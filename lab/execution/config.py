"""The shape of a Llama-family model (Llama, Mistral, Qwen2, Qwen3), read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import ModelError

#: Architecture -> the default of what its config.json may leave out, as transformers has it.
SUPPORTED = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"use_sliding_window": True, "max_position_embeddings": 131072},
    "Qwen2ForCausalLM": {"qkv_bias": True, "max_position_embeddings": 32768},
    "Qwen3ForCausalLM": {"head_norms": True, "head_dim": 128, "max_position_embeddings": 32768},
}
FAMILIES = {name.removesuffix("ForCausalLM").lower(): name for name in SUPPORTED}


class RopeScaling(NamedTuple):
    """Llama 3.1's stretched rotary frequencies: see rope.py."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: float


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one model. Query head h reads key/value head h // group (GQA; group 1 is MHA)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    tied: bool
    max_length: int
    qkv_bias: bool = False
    out_bias: bool = False
    head_norms: bool = False  # every query and key head is normalised before it is rotated (Qwen3)
    rope_scaling: RopeScaling | None = None

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; {} where the file is absent; ModelError where it is damaged."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__}, a JSON object was expected")
    return content


def read_config(folder: Path) -> ModelConfig:
    """Read `folder/config.json`. Raises ModelError for what this engine does not compute."""
    raw = read_json(folder / "config.json")
    if not raw:
        raise ModelError(f"{folder} has no config.json: it is not a checkpoint folder")
    raw = SUPPORTED[_architecture(raw, folder)] | {name: value for name, value in raw.items() if value is not None}
    raw["rope"] = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    try:
        config = _config(raw)
    except KeyError as error:
        raise ModelError(f"{folder / 'config.json'} lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder / 'config.json'} holds something that is no number: {error}") from error
    _refuse_unsupported(raw, config, folder)
    small = [name for name in ("vocab_size", "num_layers", "num_heads", "max_length") if getattr(config, name) < 1]
    if small:
        raise ModelError(f"{folder / 'config.json'}: {small[0]} is {getattr(config, small[0])}; it must be at least 1")
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise ModelError(
            f"{folder}: {config.num_heads} query heads, {config.num_kv_heads} key/value heads, head size "
            f"{config.head_dim}; the first must be a multiple of the second and the size even"
        )
    return config


def _config(raw: dict[str, Any]) -> ModelConfig:
    heads = int(raw["num_attention_heads"])
    rope, biased = raw["rope"], bool(raw.get("attention_bias"))
    theta = raw.get("rope_theta") or rope.get("rope_theta") or (raw.get("rope_parameters") or {}).get("rope_theta")
    scaled = _rope_type(rope) == "llama3"
    return ModelConfig(
        vocab_size=int(raw["vocab_size"]),
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        num_layers=int(raw["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        rope_theta=float(theta or 10000.0),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied=bool(raw.get("tie_word_embeddings", False)),
        max_length=int(raw.get("max_position_embeddings", 2048)),
        qkv_bias=biased or bool(raw.get("qkv_bias")),
        out_bias=biased,
        head_norms=bool(raw.get("head_norms")),
        rope_scaling=RopeScaling(*(float(rope[name]) for name in RopeScaling._fields)) if scaled else None,
    )


def _architecture(raw: dict[str, Any], folder: Path) -> str:
    """The supported class that this configuration names."""
    named = raw.get("architectures") or [raw.get("model_type", "unknown")]
    for name in named:
        if FAMILIES.get(name, name) in SUPPORTED:
            return FAMILIES.get(name, name)
    raise ModelError(f"{folder} is a {', '.join(map(str, named))}; this engine computes {', '.join(SUPPORTED)}")


def _rope_type(rope: dict[str, Any]) -> str:
    return rope.get("rope_type", rope.get("type", "default"))


def _refuse_unsupported(raw: dict[str, Any], config: ModelConfig, folder: Path) -> None:
    """Computing something else than the checkpoint means would be worse than not loading it."""
    kind = _rope_type(raw["rope"])
    window = raw.get("sliding_window") if raw.get("use_sliding_window") else None
    narrow = window is not None and window < config.max_length
    wrong = {
        f"rope type {kind!r}": kind not in ("default", "llama3"),
        "rotation of a part of each head": raw["rope"].get("partial_rotary_factor", 1) != 1,
        f"activation {raw.get('hidden_act')!r}": raw.get("hidden_act", "silu") != "silu",
        f"a sliding window of {window} in a context of {config.max_length} tokens": narrow,
        "biases in the MLP": bool(raw.get("mlp_bias")),
    }
    if unsupported := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ModelError(f"{folder} needs {' and '.join(unsupported)}, which this engine does not compute")
