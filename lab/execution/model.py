"""A Llama-family model (Llama, Mistral, Qwen2, Qwen3): one packed batch of tokens in, logits of the sampled rows out.

The batch is [tokens, hidden]; prompt chunks, decodes and padding of all requests lie in it side by side, and each
projection of each layer is one matrix product over all of them. Only attention knows where rows begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution import flash_attention, tiny
from lab.execution.attention import Attention
from lab.execution.config import ModelConfig
from lab.execution.device import choose_device, choose_dtype, explain_memory
from lab.execution.elementwise import gated, norm, place, rotation, take
from lab.execution.hub import fetch, is_hub_name
from lab.execution.inputs import StepInputs
from lab.execution.kv_cache import PagedKV
from lab.execution.recording import from_here_sampled, not_recorded
from lab.execution.rope import frequencies
from lab.execution.tokenizer import Messages, Tokenizer, load_tokenizer, read_eos_ids
from lab.execution.weights import Weights, expected_shapes, fuse, load_checkpoint
from lab.peaks import Peaks, this_machine
from lab.plan import LOGIT_TOLERANCE

if TYPE_CHECKING:
    from lab.execution.runner import ModelRunner

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(slots=True, repr=False)
class Model:
    """Weights that can be run, and the tokenizer that belongs to them."""

    name: str
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    eos_token_ids: tuple[int, ...]
    dtype: torch.dtype = torch.float32  # of activations, keys and values; of the weights too, unless `storage` differs
    storage: str = "fp32"
    frequencies: Tensor = field(init=False)  # [head size / 2]

    def __post_init__(self) -> None:
        self.frequencies = frequencies(self.config).to(self.device)

    def __repr__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.") + (", stored as fp16" if self.storage == "fp16" else "")
        sizes = f"{self.num_parameters / 1e6:.1f} M parameters in {self.config.num_layers} layers"
        return f"<Model {self.name}: {sizes}, {kind} on {self.device}>"

    @property
    def device(self) -> torch.device:
        return self.weights.embedding.device

    @property
    def num_parameters(self) -> int:
        """Distinct weights; a tied head is counted once."""
        return sum(prod(shape) for shape in expected_shapes(self.config).values())

    @property
    def matrix_parameters(self) -> int:
        """Weights that a sampled token is multiplied with: all layers' projections and the head."""
        c = self.config
        per_layer = c.hidden_size * (2 * c.query_size + 2 * c.kv_size + 3 * c.intermediate_size)
        return c.num_layers * per_layer + c.vocab_size * c.hidden_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps, over all layers."""
        return 2 * self.config.num_layers * self.config.kv_size * self.dtype.itemsize

    @property
    def max_context(self) -> int:
        """Most tokens a request may have, prompt and output together."""
        return self.config.max_length

    @property
    def best_block_size(self) -> int:
        """Tokens per block for speed: what flash-attn asks for where it serves this model, else 16."""
        multiple = flash_attention.BLOCK_MULTIPLE
        refused = flash_attention.refusal(self.device, self.dtype, self.config.head_dim, multiple)
        return multiple if refused is None and flash_attention.is_installed() else 16

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation (a string is one user message), ending where the answer begins."""
        return self.tokenizer.encode_chat(messages)

    def decode(self, tokens: list[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(tokens)

    def peaks(self) -> Peaks | None:
        """What this computer can do at best, where that was measured (in float32, so for float32 models only)."""
        return this_machine(self.device.type) if self.dtype == torch.float32 else None

    def runner(
        self, num_blocks: int, block_size: int = 16, attention: str = "auto", num_host_blocks: int = 0
    ) -> ModelRunner:
        """A runner over its own key-value pool of `num_blocks` blocks; `attention` is the packed backend."""
        from lab.execution.runner import ModelRunner

        return ModelRunner(self, num_blocks, block_size, attention, num_host_blocks)

    def step_flops(self, num_tokens: int, sum_of_context: int, num_sampled: int) -> int:
        """Floating-point operations of a step (a multiply-add is two).

        `sum_of_context` is the number of keys each token sees, summed over the tokens. Only `num_sampled` tokens
        go through the head. Norms, RoPE and softmax are left out: below one percent.
        """
        c = self.config
        head = c.vocab_size * c.hidden_size
        projections = 2 * (self.matrix_parameters - head) * num_tokens
        return projections + 2 * head * num_sampled + 4 * c.num_layers * c.query_size * sum_of_context

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices that every step reads, the head's included."""
        return (2 if self.storage == "fp16" else self.dtype.itemsize) * self.matrix_parameters

    @property
    def logit_tolerance(self) -> float:
        """Margins below this may come out the other way round in another batch.

        For float32 measured (see lab.running). In half precision a logit near 30 is itself rounded to 1/64 (float16) or
        1/8 (bfloat16); a few such steps, not measured on a GPU.
        """
        return {torch.float16: 0.1, torch.bfloat16: 0.5}.get(self.dtype, LOGIT_TOLERANCE)

    def step_bytes(self, num_tokens: int, resident_tokens: int) -> int:
        """Bytes a step must move at least: every matrix once, the keys and values read, those written."""
        return self.weight_bytes + self.kv_bytes_per_token * (resident_tokens + num_tokens)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, cache: PagedKV, attention: Attention) -> Tensor:
        """Compute every token of `inputs`, store its keys and values, and return logits [sampling rows, vocab].

        The rows come in the order of `inputs.last`. Works in place on the cache, which must not be used by
        another forward pass at the same time.
        """
        c = self.config
        x = take(self.weights.embedding, inputs.token_ids)  # [tokens, hidden]
        angles = rotation(inputs.positions, self.frequencies)
        work = attention.prepare(inputs, c.num_kv_heads, cache.block_size)
        for index, layer in enumerate(self.weights.layers):
            heads = layer.qkv(norm(x, layer.attention_norm, c.rms_norm_eps)).unflatten(-1, (-1, c.head_dim))
            if layer.head_norm is not None:
                not_recorded("a norm of heads")
                turned, values = heads.split((c.num_heads + c.num_kv_heads, c.num_kv_heads), dim=1)
                turned = F.rms_norm(turned, (c.head_dim,), None, c.rms_norm_eps) * layer.head_norm
                heads = torch.cat((turned, values), dim=1)
            queries = place(heads, angles, cache, index, inputs)  # and its keys and values into the cache
            mixed = attention.attend(queries, cache.keys[index], cache.values[index], work)  # [tokens, heads, dim]
            layer.out(mixed.flatten(1), onto=x)
            layer.down(gated(layer.gate_up(norm(x, layer.mlp_norm, c.rms_norm_eps))), onto=x)
        from_here_sampled()
        return self.weights.head(norm(take(x, inputs.last), self.weights.final_norm, c.rms_norm_eps))


def load_model(
    name_or_dir: str | Path = DEFAULT_MODEL, device: str = "cpu", dtype: str | None = None, storage: str = "fp32"
) -> Model:
    """The default model, `tiny` (random weights, nothing to download), a checkpoint folder, or a name on the
    Hugging Face Hub ("Qwen/Qwen2-0.5B-Instruct", with "@" and a commit to pin it): Llama, Mistral, Qwen2, Qwen3.

    `device` is "cpu" unless told: "cuda", "cuda:1", or "auto" for a GPU where there is one. `dtype` is "float32",
    "bfloat16" or "float16"; by default float32 on the CPU, and on a GPU bfloat16, or float16 where that is older than
    Ampere (a T4). `storage="fp16"` keeps the CPU's weights in half the memory; the arithmetic stays float32.

    Raises ModelError where there is nothing to load, no such device, too little memory, or a checkpoint that is
    damaged or not one this engine computes.
    """
    place = choose_device(device)
    kind = choose_dtype(dtype, place)
    if storage != "fp32" and (place.type != "cpu" or kind != torch.float32):
        raise ModelError(f"storage {storage!r} is for float32 on the CPU; on {place} choose a dtype instead")
    if name_or_dir == tiny.NAME:
        config, tensors = tiny.make()
        tensors = {name: tensor.to(place, kind) for name, tensor in tensors.items()}
        name, tokenizer, eos = tiny.NAME, tiny.TOKENIZER, (tiny.TOKENIZER.EOS,)
    else:
        folder = fetch(name_or_dir) if _is_on_hub(name_or_dir) else _folder_of(name_or_dir)
        config, tensors = load_checkpoint(folder, place, kind)
        name = str(name_or_dir) if _is_on_hub(name_or_dir) else folder.name
        tokenizer = load_tokenizer(folder)
        eos = read_eos_ids(folder, tokenizer)
    with explain_memory(f"the weights of {name}", "take a smaller model or a shorter dtype", place):
        return Model(name, config, fuse(config, tensors, storage), tokenizer, eos, kind, storage)


def _is_on_hub(name_or_dir: str | Path) -> bool:
    return is_hub_name(name_or_dir) and not Path(name_or_dir).exists()


def _folder_of(name_or_dir: str | Path) -> Path:
    """A path that exists, else the place where set-up puts a model of that name."""
    from lab.setup.paths import model_dir

    path = Path(name_or_dir).expanduser()
    if path.is_dir() or len(path.parts) > 1 or path.is_absolute():
        return path
    try:
        return model_dir(str(name_or_dir))
    except (KeyError, ValueError) as error:
        raise ModelError(f"there is no model {name_or_dir!r}: {error}") from error
