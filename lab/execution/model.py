"""A Llama-family model: one packed batch of tokens in, logits of the sampled rows out.

The batch is [tokens, hidden]; prompt chunks, decodes and padding of all requests lie in it side by side, and each
projection of each layer is one matrix product over all of them. Only attention knows where rows begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution import tiny
from lab.execution.attention import Attention
from lab.execution.config import ModelConfig
from lab.execution.inputs import StepInputs
from lab.execution.kv_cache import PagedKV
from lab.execution.tokenizer import Messages, Tokenizer, load_tokenizer, read_eos_ids
from lab.execution.weights import Weights, fuse, load_checkpoint

if TYPE_CHECKING:
    from lab.execution.runner import ModelRunner

DEFAULT_MODEL = "smollm2-135m-instruct"
BYTES_PER_NUMBER = 4  # everything is float32


@dataclass(slots=True)
class Model:
    """Weights that can be run, and the tokenizer that belongs to them."""

    name: str
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    eos_token_ids: tuple[int, ...]

    @property
    def num_parameters(self) -> int:
        """Distinct weights; a tied head is counted once."""
        return self.matrix_parameters + self.config.hidden_size * (
            2 * self.config.num_layers + 1 + (0 if self.config.tied else self.config.vocab_size)
        )

    @property
    def matrix_parameters(self) -> int:
        """Weights that a sampled token is multiplied with: all layers' projections and the head."""
        c = self.config
        per_layer = c.hidden_size * (2 * c.query_size + 2 * c.kv_size + 3 * c.intermediate_size)
        return c.num_layers * per_layer + c.vocab_size * c.hidden_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps, over all layers."""
        return 2 * self.config.num_layers * self.config.kv_size * BYTES_PER_NUMBER

    @property
    def max_context(self) -> int:
        """Most tokens a request may have, prompt and output together."""
        return self.config.max_length

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation (a string is one user message), ending where the answer begins."""
        return self.tokenizer.encode_chat(messages)

    def decode(self, tokens: list[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(tokens)

    def runner(
        self, num_blocks: int, block_size: int = 16, attention: str = "paged_cpu", num_host_blocks: int = 0
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

    def step_bytes(self, num_tokens: int, resident_tokens: int) -> int:
        """Bytes a step must move at least: every matrix once, the keys and values read, those written."""
        return BYTES_PER_NUMBER * self.matrix_parameters + self.kv_bytes_per_token * (resident_tokens + num_tokens)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, cache: PagedKV, attention: Attention) -> Tensor:
        """Compute every token of `inputs`, store its keys and values, and return logits [sampling rows, vocab].

        The rows come in the order of `inputs.last`. Works in place on the cache, which must not be used by
        another forward pass at the same time.
        """
        c = self.config
        x = F.embedding(inputs.token_ids, self.weights.embedding)  # [tokens, hidden]
        rotation = self._rotation(inputs.positions)
        work = attention.prepare(inputs, c.num_kv_heads, cache.block_size)
        for index, layer in enumerate(self.weights.layers):
            heads = layer.qkv(self._norm(x, layer.attention_norm)).unflatten(-1, (-1, c.head_dim))
            turned, values = heads.split((c.num_heads + c.num_kv_heads, c.num_kv_heads), dim=1)
            queries, keys = rotate(turned, rotation).split((c.num_heads, c.num_kv_heads), dim=1)
            cache.write(index, keys, values, inputs)
            mixed = attention.attend(queries, cache.keys[index], cache.values[index], work)  # [tokens, heads, dim]
            x += layer.out(mixed.flatten(1))
            gate, up = layer.gate_up(self._norm(x, layer.mlp_norm)).chunk(2, dim=-1)
            x += layer.down(F.silu(gate).mul_(up))
        return self.weights.head(self._norm(x[inputs.last], self.weights.final_norm))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.rms_norm_eps)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [tokens, 1, dim / 2] of the absolute positions (RoPE, arXiv:2104.09864)."""
        dim = self.config.head_dim
        frequencies = self.config.rope_theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        angles = positions.to(torch.float32)[:, None, None] * frequencies
        return angles.cos(), angles.sin()


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (i, i + dim / 2) of [tokens, heads, dim] by its token's angle: the pairing Llama weights use."""
    cos, sin = rotation
    left, right = heads.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def load_model(name_or_dir: str | Path = DEFAULT_MODEL) -> Model:
    """The default model, `tiny` (random weights, nothing to download), or a Llama-family checkpoint folder.

    Raises ModelError where there is nothing to load or the checkpoint is not one this engine computes.
    """
    if name_or_dir == tiny.NAME:
        config, tensors = tiny.make()
        return Model(tiny.NAME, config, fuse(config, tensors), tiny.TOKENIZER, (tiny.TOKENIZER.EOS,))
    folder = _folder_of(name_or_dir)
    config, tensors = load_checkpoint(folder)
    tokenizer = load_tokenizer(folder)
    return Model(folder.name, config, fuse(config, tensors), tokenizer, read_eos_ids(folder, tokenizer))


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
