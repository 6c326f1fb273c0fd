"""Weights from disk: a Llama-family folder of safetensors becomes fused, prepacked layers. Never a pickle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lab.errors import ModelError
from lab.execution.config import ModelConfig, read_config, read_json
from lab.execution.device import check_room, explain_memory
from lab.execution.linear import Linear

Tensors = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]
CPU = torch.device("cpu")
#: The numbers a weight may be stored as; integers and 8-bit floats mean something only together with their scales.
STORED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(slots=True, repr=False)
class Layer:
    """One transformer layer. `qkv` and `gate_up` are several projections of the same input, multiplied at once."""

    attention_norm: Tensor  # [hidden]
    qkv: Linear  # hidden -> query heads, key heads, value heads
    out: Linear
    mlp_norm: Tensor  # [hidden]
    gate_up: Linear  # hidden -> gate, up
    down: Linear
    head_norm: Tensor | None = None  # [query and key heads, head size], where heads are normalised (Qwen3)


@dataclass(slots=True, repr=False)
class Weights:
    """All of a model's numbers, in the layout in which they are computed with."""

    embedding: Tensor  # [vocab, hidden]
    layers: list[Layer]
    final_norm: Tensor  # [hidden]
    head: Linear  # hidden -> vocab


def expected_shapes(config: ModelConfig) -> Shapes:
    """Every tensor a checkpoint of this configuration must hold, by its Hugging Face name."""
    hidden = config.hidden_size
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in _layer_shapes(config).items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _layer_shapes(config: ModelConfig) -> Shapes:
    hidden, wide = config.hidden_size, config.intermediate_size
    query, kv = config.query_size, config.kv_size
    shapes: Shapes = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
    }
    if config.qkv_bias:
        shapes |= {"self_attn.q_proj.bias": (query,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
    if config.out_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if config.head_norms:
        shapes |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    return shapes


def load_checkpoint(
    folder: str | Path, device: torch.device = CPU, dtype: torch.dtype = torch.float32
) -> tuple[ModelConfig, Tensors]:
    """Read configuration and tensors of a checkpoint folder, as `dtype` on `device`.

    Raises ModelError that names the folder, file or tensor (with both shapes) when something is missing, left over, of
    another shape or dtype, not finite, or of an architecture this engine does not compute, or memory is too small.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(
            f"there is no model folder {folder}: run `python3 -m lab --setup-only`, or give another folder"
        )
    config = read_config(folder)
    shapes = expected_shapes(config)
    where = _files_of(folder, shapes, config.tied)
    total = sum(map(math.prod, shapes.values())) * dtype.itemsize
    what, advice = f"the weights of {folder.name} ({total / 2**30:.2f} GiB)", "take a smaller model or a shorter dtype"
    check_room(total, what, advice, device)
    tensors: Tensors = {}
    with explain_memory(what, advice, device):
        for path in sorted(set(where.values())):
            tensors |= _read_file(path, [name for name in shapes if where[name] == path], shapes, device, dtype)
    return config, tensors


def _files_of(folder: Path, shapes: Shapes, tied: bool) -> dict[str, Path]:
    """Which file each tensor is in: all in model.safetensors, or as the index of a sharded checkpoint says.

    Every tensor must be wanted, and every wanted one be there: what is left over would change the tokens if it were
    computed (biases, scales, layers).
    """
    single = folder / "model.safetensors"
    index = dict.fromkeys(_names_in(single), single.name) if single.is_file() else _read_index(folder)
    for name in shapes:
        if name not in index:
            lacking = single if single.is_file() else f"the index of {folder}"
            raise ModelError(f"{lacking} lacks tensor {name} {list(shapes[name])}")
    where = {name: folder / Path(file).name for name, file in index.items()}
    for path in sorted(set(where.values())):
        present = _names_in(path)
        _check_all_used(present, path, shapes, tied)
        for name in shapes:
            if where[name] == path and name not in present:
                raise ModelError(f"{path} lacks tensor {name} {list(shapes[name])}")
    return {name: where[name] for name in shapes}


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor -> file of a sharded checkpoint."""
    path = folder / "model.safetensors.index.json"
    index = read_json(path).get("weight_map")
    if index is None:
        raise ModelError(f"{folder} has neither model.safetensors nor model.safetensors.index.json")
    if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
        raise ModelError(f"{path}: its weight_map must name a file for each tensor")
    return index


def _names_in(path: Path) -> set[str]:
    """The tensors of one file; only its header is read."""
    try:
        with safe_open(path, framework="pt") as file:
            return set(file.keys())
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _check_all_used(present: set[str], path: Path, shapes: Shapes, tied: bool) -> None:
    """Frequencies are computed anew, and a tied head is the embedding; nothing else may be left over."""
    known = {"lm_head.weight"} if tied else set()
    left = sorted(name for name in present - shapes.keys() - known if not name.endswith("rotary_emb.inv_freq"))
    if left:
        raise ModelError(f"{path} holds {left[0]}, one of {len(left)} tensors that its config.json makes no use of")


def _read_file(path: Path, names: list[str], shapes: Shapes, device: torch.device, dtype: torch.dtype) -> Tensors:
    """The named tensors of one safetensors file, checked."""
    tensors: Tensors = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in names:
                tensor = file.get_tensor(name)
                if tensor.dtype not in STORED:
                    kind = str(tensor.dtype).removeprefix("torch.")
                    raise ModelError(f"{path}: tensor {name} is stored as {kind}, which this engine does not compute")
                if tuple(tensor.shape) != shapes[name]:
                    raise ModelError(
                        f"{path}: tensor {name} has shape {list(tensor.shape)}, "
                        f"its config.json asks for {list(shapes[name])}"
                    )
                tensors[name] = tensor.to(device, dtype)
                _check_finite(tensors[name], f"{path}: tensor {name}")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    return tensors


def _check_finite(tensor: Tensor, name: str) -> None:
    """One number that is not finite would make every token of every request the same nonsense, silently."""
    low, high = (bound.item() for bound in torch.aminmax(tensor))  # NaN where anything is NaN
    if not (math.isfinite(low) and math.isfinite(high)):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ModelError(f"{name} holds numbers that are not finite in {kind}: a damaged file, or too short a dtype")


def fuse(config: ModelConfig, tensors: Tensors, storage: str = "fp32") -> Weights:
    """Join the projections that share an input and prepack every matrix, stored as linear.py's `storage` says.

    Empties `tensors`, so that no weight is kept twice.
    """
    embedding, final_norm = tensors.pop("model.embed_tokens.weight"), tensors.pop("model.norm.weight")
    layers = [_fuse_layer(config, tensors, f"model.layers.{i}.", storage) for i in range(config.num_layers)]
    head = Linear(embedding if config.tied else tensors.pop("lm_head.weight"), storage=storage)
    return Weights(embedding, layers, final_norm, head)


def _fuse_layer(config: ModelConfig, tensors: Tensors, prefix: str, storage: str) -> Layer:
    def get(name: str) -> Tensor:
        return tensors.pop(prefix + name)

    def joined(*names: str, bias: bool = False) -> Linear:
        parts = [get(f"{name}.weight") for name in names]
        biases = torch.cat([get(f"{name}.bias") for name in names]) if bias else None
        return Linear(torch.cat(parts), biases, storage=storage)

    head_norm = None
    if config.head_norms:
        heads = (config.num_heads, config.num_kv_heads)
        norms = (get("self_attn.q_norm.weight"), get("self_attn.k_norm.weight"))
        head_norm = torch.cat([norm.expand(count, -1) for norm, count in zip(norms, heads, strict=True)])
    return Layer(
        attention_norm=get("input_layernorm.weight"),
        qkv=joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=config.qkv_bias),
        out=joined("self_attn.o_proj", bias=config.out_bias),
        mlp_norm=get("post_attention_layernorm.weight"),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"),
        down=joined("mlp.down_proj"),
        head_norm=head_norm,
    )
