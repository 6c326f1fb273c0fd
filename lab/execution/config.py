"""The shape of a Llama-family model (Llama, Mistral, Qwen2, Qwen3), read from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import ModelError
from lab.numbers import real, whole

#: Architecture -> the default of what its config.json may leave out, as transformers has it.
SUPPORTED = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"use_sliding_window": True, "max_position_embeddings": 131072},
    "Qwen2ForCausalLM": {"qkv_bias": True, "max_position_embeddings": 32768},
    "Qwen3ForCausalLM": {"head_norms": True, "head_dim": 128, "max_position_embeddings": 32768},
}
#: Counts above these are damage, not models; refused before anything of that size is built.
MOST_OF_ANYTHING, MOST = 1 << 40, {"num_hidden_layers": 10_000}
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
    path = folder / "config.json"
    raw = read_json(path)
    if not raw:
        raise ModelError(f"{folder} has no config.json: it is not a checkpoint folder")
    raw = SUPPORTED[_architecture(raw, folder)] | {name: value for name, value in raw.items() if value is not None}
    raw["rope"] = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    for name in ("rope", "rope_parameters"):
        if not isinstance(raw.get(name, {}), dict):
            raise ModelError(f"{path}: rope_scaling or rope_parameters is {raw[name]!r}; it must be an object")
    try:
        config = _config(raw, str(path))
    except KeyError as error:
        raise ModelError(f"{path} lacks {error}") from error
    except OverflowError as error:
        raise ModelError(f"{path} holds a number that is too large: {error}") from error
    _refuse_unsupported(raw, config, folder)
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise ModelError(
            f"{folder}: {config.num_heads} query heads, {config.num_kv_heads} key/value heads, head size "
            f"{config.head_dim}; the first must be a multiple of the second and the size even"
        )
    return config


def _config(raw: dict[str, Any], path: str) -> ModelConfig:
    heads = _count(raw, "num_attention_heads", path)
    biased = bool(raw.get("attention_bias"))
    hidden = _count(raw, "hidden_size", path)
    return ModelConfig(
        vocab_size=_count(raw, "vocab_size", path),
        hidden_size=hidden,
        intermediate_size=_count(raw, "intermediate_size", path),
        num_layers=_count(raw, "num_hidden_layers", path),
        num_heads=heads,
        num_kv_heads=_count({"num_key_value_heads": heads} | raw, "num_key_value_heads", path),
        head_dim=_count({"head_dim": hidden // heads} | raw, "head_dim", path),
        rope_theta=_above(_theta(raw), "rope_theta", path),
        rms_norm_eps=_above(raw.get("rms_norm_eps", 1e-6), "rms_norm_eps", path),
        tied=bool(raw.get("tie_word_embeddings", False)),
        max_length=_count({"max_position_embeddings": 2048} | raw, "max_position_embeddings", path),
        qkv_bias=biased or bool(raw.get("qkv_bias")),
        out_bias=biased,
        head_norms=bool(raw.get("head_norms")),
        rope_scaling=_scaling(raw["rope"], path) if _rope_type(raw["rope"]) == "llama3" else None,
    )


def _count(raw: dict[str, Any], name: str, path: str) -> int:
    """The whole number called `name`, 1 to MOST; KeyError where there is none."""
    value, most = raw[name], MOST.get(name, MOST_OF_ANYTHING)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if whole(value, f"{path}: {name} of", error=ModelError) > most:
        raise ModelError(f"{path}: {name} of {value:,}; it must be at most {most:,}")
    return value


def _above(value: Any, name: str, path: str) -> float:
    """`value` as a finite number above 0."""
    if real(value, f"{path}: {name} of", error=ModelError) == 0:
        raise ModelError(f"{path}: {name} of {value}; it must be above 0")
    return float(value)


def _theta(raw: dict[str, Any]) -> Any:
    """The base of the rotary frequencies, in whichever of its places it is given."""
    places = (raw, raw["rope"], raw.get("rope_parameters", {}))
    return next((place["rope_theta"] for place in places if place.get("rope_theta") is not None), 10000.0)


def _scaling(rope: dict[str, Any], path: str) -> RopeScaling:
    scaling = RopeScaling(*(_above(rope[name], f"rope scaling's {name}", path) for name in RopeScaling._fields))
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise ModelError(
            f"{path}: rope scaling's high_freq_factor of {scaling.high_freq_factor}; "
            f"it must be above low_freq_factor, which is {scaling.low_freq_factor}"
        )
    return scaling


def _architecture(raw: dict[str, Any], folder: Path) -> str:
    """The supported class that this configuration names."""
    named = raw.get("architectures") or raw.get("model_type", "unknown")
    named = [str(name) for name in (named if isinstance(named, list) else [named])]
    for name in named:
        if FAMILIES.get(name, name) in SUPPORTED:
            return FAMILIES.get(name, name)
    raise ModelError(f"{folder} is a {', '.join(named)}; this engine computes {', '.join(SUPPORTED)}")


def _rope_type(rope: dict[str, Any]) -> str:
    return rope.get("rope_type", rope.get("type", "default"))


def _refuse_unsupported(raw: dict[str, Any], config: ModelConfig, folder: Path) -> None:
    """Computing something else than the checkpoint means would be worse than not loading it."""
    kind, rope = _rope_type(raw["rope"]), raw["rope"]
    other = _layer_types(raw) - {"full_attention", "sliding_attention"}
    window = _window(raw, str(folder / "config.json"))
    quantised = raw.get("quantization_config") or raw.get("compression_config")
    method = quantised.get("quant_method", "of an unnamed method") if isinstance(quantised, dict) else quantised
    wrong = {
        f"quantised weights ({method})": bool(quantised),
        f"rope type {kind!r}": kind not in ("default", "llama3"),
        "a rotation for each kind of layer": any(isinstance(value, dict) for value in rope.values()),
        "rotation of a part of each head": any(at.get("partial_rotary_factor", 1) != 1 for at in (raw, rope)),
        f"activation {raw.get('hidden_act')!r}": raw.get("hidden_act", "silu") != "silu",
        f"layers of {', '.join(sorted(other))}": bool(other),
        f"a sliding window of {window} in a context of {config.max_length} tokens": window < config.max_length,
        "biases in the MLP": bool(raw.get("mlp_bias")),
    }
    if unsupported := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ModelError(f"{folder} needs {' and '.join(unsupported)}, which this engine does not compute")


def _layer_types(raw: dict[str, Any]) -> set[str]:
    layers = raw.get("layer_types", [])
    return set(map(str, layers if isinstance(layers, list) else [layers]))


def _window(raw: dict[str, Any], path: str) -> float:
    """Keys that the narrowest layer reads at most: infinity where no layer has a window."""
    slides = "sliding_attention" in _layer_types(raw)
    if not slides and (raw.get("sliding_window") is None or not raw.get("use_sliding_window")):
        return inf
    if raw.get("sliding_window") is None:
        raise ModelError(f"{path} has layers of sliding_attention, and no sliding_window")
    return _count(raw, "sliding_window", path)
