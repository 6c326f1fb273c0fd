"""Weights from disk: a Llama-family folder of safetensors becomes fused, prepacked float32 layers. Never a pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lab.errors import ModelError
from lab.execution.config import ModelConfig, read_config, read_json
from lab.execution.linear import Linear

Tensors = dict[str, Tensor]


@dataclass(slots=True)
class Layer:
    """One transformer layer. `qkv` and `gate_up` are several projections of the same input, multiplied at once."""

    attention_norm: Tensor  # [hidden]
    qkv: Linear  # hidden -> query heads, key heads, value heads
    out: Linear
    mlp_norm: Tensor  # [hidden]
    gate_up: Linear  # hidden -> gate, up
    down: Linear


@dataclass(slots=True)
class Weights:
    embedding: Tensor  # [vocab, hidden]
    layers: list[Layer]
    final_norm: Tensor  # [hidden]
    head: Linear  # hidden -> vocab


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint of this configuration must hold, by its Hugging Face name."""
    hidden, wide = config.hidden_size, config.intermediate_size
    query, kv = config.query_size, config.kv_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {
            f"model.layers.{i}.input_layernorm.weight": (hidden,),
            f"model.layers.{i}.self_attn.q_proj.weight": (query, hidden),
            f"model.layers.{i}.self_attn.k_proj.weight": (kv, hidden),
            f"model.layers.{i}.self_attn.v_proj.weight": (kv, hidden),
            f"model.layers.{i}.self_attn.o_proj.weight": (hidden, query),
            f"model.layers.{i}.post_attention_layernorm.weight": (hidden,),
            f"model.layers.{i}.mlp.gate_proj.weight": (wide, hidden),
            f"model.layers.{i}.mlp.up_proj.weight": (wide, hidden),
            f"model.layers.{i}.mlp.down_proj.weight": (hidden, wide),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def load_checkpoint(folder: str | Path) -> tuple[ModelConfig, Tensors]:
    """Read configuration and float32 tensors of a checkpoint folder.

    Raises ModelError that names the folder, file or tensor (with both shapes) when something is missing, of
    another shape, or of an architecture this engine does not compute.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(
            f"there is no model folder {folder}: run `python3 -m lab --setup-only`, or give another folder"
        )
    config = read_config(folder)
    shapes = expected_shapes(config)
    where = _files_of(folder, shapes)
    tensors: Tensors = {}
    for path in sorted(set(where.values())):
        tensors |= _read_file(path, [name for name in shapes if where[name] == path], shapes)
    return config, tensors


def _files_of(folder: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Path]:
    """Which file each tensor is in: all in model.safetensors, or as the index of a sharded checkpoint says."""
    if (folder / "model.safetensors").is_file():
        return dict.fromkeys(shapes, folder / "model.safetensors")
    index = read_json(folder / "model.safetensors.index.json").get("weight_map")
    if index is None:
        raise ModelError(f"{folder} has neither model.safetensors nor model.safetensors.index.json")
    for name in shapes:
        if name not in index:
            raise ModelError(f"{folder} lacks tensor {name} {list(shapes[name])}: its index names no file for it")
    return {name: folder / Path(index[name]).name for name in shapes}


def _read_file(path: Path, names: list[str], shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """The named tensors of one safetensors file, checked and as float32."""
    tensors: Tensors = {}
    try:
        with safe_open(path, framework="pt") as file:
            present = set(file.keys())
            for name in names:
                if name not in present:
                    raise ModelError(f"{path} lacks tensor {name} {list(shapes[name])}")
                tensor = file.get_tensor(name)
                if tuple(tensor.shape) != shapes[name]:
                    raise ModelError(
                        f"{path}: tensor {name} has shape {list(tensor.shape)}, "
                        f"its config.json asks for {list(shapes[name])}"
                    )
                tensors[name] = tensor.to(torch.float32)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    return tensors


def fuse(config: ModelConfig, tensors: Tensors) -> Weights:
    """Join the projections that share an input and prepack every matrix."""

    def get(i: int, name: str) -> Tensor:
        return tensors[f"model.layers.{i}.{name}.weight"]

    def joined(i: int, *names: str) -> Linear:
        return Linear(torch.cat([get(i, name) for name in names]))

    layers = [
        Layer(
            attention_norm=get(i, "input_layernorm"),
            qkv=joined(i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=Linear(get(i, "self_attn.o_proj")),
            mlp_norm=get(i, "post_attention_layernorm"),
            gate_up=joined(i, "mlp.gate_proj", "mlp.up_proj"),
            down=Linear(get(i, "mlp.down_proj")),
        )
        for i in range(config.num_layers)
    ]
    embedding = tensors["model.embed_tokens.weight"]
    head = Linear(embedding if config.tied else tensors["lm_head.weight"])
    return Weights(embedding, layers, tensors["model.norm.weight"], head)
