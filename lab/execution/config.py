"""The shape of a Llama-family model, read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import ModelError

SUPPORTED = ("LlamaForCausalLM",)


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
    _refuse_unsupported(raw, folder)
    try:
        heads = int(raw["num_attention_heads"])
        rope = raw.get("rope_parameters") or {}
        config = ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=int(raw["hidden_size"]),
            intermediate_size=int(raw["intermediate_size"]),
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
            rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            tied=bool(raw.get("tie_word_embeddings", False)),
            max_length=int(raw.get("max_position_embeddings", 2048)),
        )
    except KeyError as error:
        raise ModelError(f"{folder / 'config.json'} lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} holds something that is no number: {error}") from error
    small = [name for name in ("vocab_size", "num_layers", "num_heads", "max_length") if getattr(config, name) < 1]
    if small:
        raise ModelError(f"{folder / 'config.json'}: {small[0]} is {getattr(config, small[0])}; it must be at least 1")
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise ModelError(
            f"{folder}: {config.num_heads} query heads, {config.num_kv_heads} key/value heads, head size "
            f"{config.head_dim}; the first must be a multiple of the second and the size even"
        )
    return config


def _refuse_unsupported(raw: dict[str, Any], folder: Path) -> None:
    """Computing something else than the checkpoint means would be worse than not loading it."""
    architectures = raw.get("architectures") or [raw.get("model_type", "unknown")]
    if not set(architectures) & {*SUPPORTED, "llama"}:
        raise ModelError(f"{folder} is a {', '.join(architectures)}; this engine computes {', '.join(SUPPORTED)}")
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    wrong = {
        f"rope type {kind!r}": kind != "default",
        f"activation {raw.get('hidden_act')!r}": raw.get("hidden_act", "silu") != "silu",
        "biases in attention": bool(raw.get("attention_bias")),
        "biases in the MLP": bool(raw.get("mlp_bias")),
    }
    if unsupported := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ModelError(f"{folder} needs {' and '.join(unsupported)}, which this engine does not compute")
