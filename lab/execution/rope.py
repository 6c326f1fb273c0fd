"""Rotary positions (RoPE, arXiv:2104.09864): each pair of a head's numbers is turned by position x frequency."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lab.execution.config import ModelConfig, RopeScaling


def frequencies(config: ModelConfig) -> Tensor:
    """Angle per position of each pair, float32 [dim / 2], fastest first."""
    dim = config.head_dim
    plain = config.rope_theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    return plain if config.rope_scaling is None else stretch(plain, config.rope_scaling)


def stretch(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1's frequencies for contexts longer than the one first trained on.

    Pairs that turn more than `high_freq_factor` times within the original context stay; those that turn less than
    `low_freq_factor` times are slowed down by `factor`; in between the two are mixed.
    """
    turns = plain * (scaling.original_max_position_embeddings / (2 * math.pi))
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return torch.lerp(plain / scaling.factor, plain, share.clamp(0, 1))


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [tokens, 1, dim / 2], of absolute positions [tokens]."""
    angles = positions.to(torch.float32)[:, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (i, i + dim / 2) of [tokens, heads, dim] by its token's angle: the pairing Llama weights use.

    Computed in float32 whatever the heads' type is: at position 8,000 a half-precision angle is meaningless.
    """
    cos, sin = rotation
    left, right = heads.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(heads.dtype)
