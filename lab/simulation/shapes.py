"""The shapes of published models: what a step of each must compute, read and keep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.errors import BadPolicy, UnknownName
from lab.numbers import whole

TABLE = Path(__file__).resolve().parents[2] / "data" / "model_shapes.json"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer. Query heads share key/value heads in groups (GQA; MHA where they are as many).

    `gated`: the MLP has three matrices (gate, up, down), otherwise two. `tied`: the head is the embedding.
    `biases` are those of "none", "qkv" or "all" projections. `learned_positions` rows of a position table come on
    top, 0 where positions are rotated. `layer_norm` norms have a bias, RMS norms do not; `qk_norm` normalises each
    query and key head. Raises BadPolicy for sizes that make no model.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context: int
    gated: bool = True
    tied: bool = False
    biases: str = "none"
    learned_positions: int = 0
    layer_norm: bool = False
    qk_norm: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        for size in ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "max_context"):
            whole(getattr(self, size), f"model {self.name!r} has a {size} of")
        if self.heads % self.kv_heads:
            raise BadPolicy(f"model {self.name!r} has {self.heads} heads over {self.kv_heads} kv_heads: not a multiple")
        if self.biases not in ("none", "qkv", "all"):
            raise BadPolicy(f"model {self.name!r} has biases {self.biases!r}; there are none, qkv, all")

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def layer_matrices(self) -> int:
        """Weights in one layer's projections: each costs a token one multiply-add."""
        attention = self.hidden * (2 * self.query_size + 2 * self.kv_size)
        return attention + (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def head_matrix(self) -> int:
        """Weights of the language-model head."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All distinct weights, as the publishers count them; a tied head is counted once."""
        norm = self.hidden * (2 if self.layer_norm else 1)
        per_layer = self.layer_matrices + 2 * norm + (2 * self.head_dim if self.qk_norm else 0)
        if self.biases != "none":
            per_layer += self.query_size + 2 * self.kv_size
        if self.biases == "all":
            per_layer += 2 * self.hidden + self.intermediate * (2 if self.gated else 1)
        tables = self.head_matrix * (1 if self.tied else 2) + self.learned_positions * self.hidden
        return self.layers * per_layer + norm + tables

    @property
    def kv_numbers_per_token(self) -> int:
        """Numbers that one token keeps as keys and values, over all layers."""
        return 2 * self.layers * self.kv_size

    @property
    def activations(self) -> tuple[int, int]:
        """Numbers that one token moves through memory in one layer, beside weights: (on every device, sharded).

        Tensor parallelism shards what lies between the projections (RoPE, the activation function); the two norms,
        the residual addition and the hidden states that enter and leave a projection are whole on every device.
        """
        between = 4 * (self.query_size + self.kv_size) + (6 if self.gated else 4) * self.intermediate
        return 11 * self.hidden, between


@cache
def table() -> dict[str, ModelShape]:
    """Every shape of `data/model_shapes.json` by its name."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["models"]
    return {name: ModelShape(name=name, **row) for name, row in rows.items()}


def model_shape(name: str | ModelShape) -> ModelShape:
    """The shape called `name` (case does not matter); a ModelShape is returned as it is. Raises UnknownName."""
    if isinstance(name, ModelShape):
        return name
    if not isinstance(name, str) or name.strip().lower() not in table():
        raise UnknownName("model", name, table())
    return table()[name.strip().lower()]
