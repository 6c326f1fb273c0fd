"""What it costs to prefill the prompts of one device: attention alone, or all of a model's arithmetic.

Causal attention over a prompt of N tokens computes T(N) = N(N + 1)/2 query-key dot products per head and layer.
A kernel for variable lengths computes just these; a padded one computes a rectangle of B rows as long as the longest:

    varlen   Σ T(N)                 padded   B · T(longest)

All of prefill adds the linear layers: 2 FLOPs per weight and token, against 4 · heads · head size · layers FLOPs per
dot product (query-key and weight-value, a multiplication and an addition each). Embedding, output layer (needed for
one position only), norms and softmax are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.errors import BadPolicy

KERNELS = ("varlen", "padded")


def triangle(tokens: int) -> int:
    """T(N) = N(N + 1)/2."""
    return tokens * (tokens + 1) // 2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder that its FLOPs follow from."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    gated: bool = True  # three matrices in the MLP (SwiGLU) instead of two

    @property
    def linear_weights(self) -> int:
        """Weights of all linear layers, without embedding and output layer."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return self.layers * (attention + (3 if self.gated else 2) * self.hidden * self.mlp)

    @property
    def attention_flops(self) -> int:
        """FLOPs per causal query-key pair, over all heads and layers."""
        return 4 * self.heads * self.head_size * self.layers

    @property
    def crossover(self) -> int:
        """Prompt length at which attention costs as much as the linear layers: 4·h·d·L·T(N) = 2·P·N."""
        return round(4 * self.linear_weights / self.attention_flops - 1)


MODELS = {
    shape.name: shape
    for shape in (
        ModelShape("llama-3-70b", 80, 8192, 64, 8, 128, 28672),
        ModelShape("llama-3-8b", 32, 4096, 32, 8, 128, 14336),
        ModelShape("llama-2-7b", 32, 4096, 32, 32, 128, 11008),
        ModelShape("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864),
        ModelShape("gpt2-124m", 12, 768, 12, 12, 64, 3072, gated=False),
        ModelShape("smollm2-135m", 30, 576, 9, 3, 64, 1536),
    )
}


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Work of one device's prompts: dot products per head and layer, or with a `model` FLOPs of the whole prefill."""

    kernel: str = "varlen"
    model: ModelShape | None = None

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise BadPolicy(f"kernel {self.kernel!r} is not known; there are {', '.join(KERNELS)}")

    @property
    def unit(self) -> str:
        """What the numbers count."""
        return "query-key dot products per head and layer" if self.model is None else "FLOPs"

    def attention(self, prompts: Sequence[int]) -> int:
        """Dot products per head and layer."""
        if self.kernel == "padded":
            return len(prompts) * triangle(max(prompts, default=0))
        return sum(triangle(tokens) for tokens in prompts)

    def __call__(self, prompts: Sequence[int]) -> int:
        """Work of a device that computes `prompts` (0 for none); exact."""
        if self.model is None:
            return self.attention(prompts)
        tokens = len(prompts) * max(prompts, default=0) if self.kernel == "padded" else sum(prompts)
        return self.model.attention_flops * self.attention(prompts) + 2 * self.model.linear_weights * tokens

    def attention_share(self, prompts: Sequence[int]) -> float:
        """Share of attention in a device's work; 1 where nothing else is counted."""
        scale = 1 if self.model is None else self.model.attention_flops
        return scale * self.attention(prompts) / self(prompts)


def model_named(name: str) -> ModelShape:
    """A shape from the table. Raises BadPolicy with the names there are."""
    if name not in MODELS:
        raise BadPolicy(f"model {name!r} is not known; there are {', '.join(MODELS)}")
    return MODELS[name]
