"""`tiny`: a random two-layer Llama for tests and for reading, made on the spot, the same on every machine."""

from __future__ import annotations

import torch
from torch import Tensor

from lab.execution.config import ModelConfig
from lab.execution.tokenizer import ByteTokenizer
from lab.execution.weights import expected_shapes

NAME = "tiny"
SEED = 2024
TOKENIZER = ByteTokenizer()

#: Gains over variance-preserving weights. Sharp attention keeps greedy output from falling into a short cycle; wide
#: logits keep the two best tokens apart (over 2,400 tokens: median margin 2.2, one in a hundred below 0.03).
GAINS = {"q_proj": 2.0, "k_proj": 2.0, "lm_head": 10.0}


def make(seed: int = SEED) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and seeded float32 weights under their checkpoint names."""
    config = ModelConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=176,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        tied=False,
        max_length=4096,
    )
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            tensors[name] = torch.ones(shape)
            continue
        fan_in = 1 if name == "model.embed_tokens.weight" else shape[1]
        gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
        tensors[name] = torch.randn(shape, generator=generator) * (gain * fan_in**-0.5)
    return config, tensors
