"""Keys and values in blocks: the real bytes behind the block ids that memory hands out.

One pool per model, `num_blocks` blocks for requests plus one scratch block (id `num_blocks`) that takes what
padding tokens write. The host store keeps swapped-out blocks.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from lab.errors import BlockError, ModelError
from lab.execution.config import ModelConfig
from lab.execution.inputs import StepInputs
from lab.plan import BlockCopy


class PagedKV:
    """Keys and values, each [layers, blocks + 1, kv heads, slots, dim]; one head of one block lies in one piece.

    Every element is finite at all times (the pool starts at zero), so slots that are not yet written may be
    multiplied by a zero weight without harm.
    """

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int, num_host_blocks: int = 0):
        self.num_blocks, self.block_size, self.num_host_blocks = num_blocks, block_size, num_host_blocks
        layers = config.num_layers
        total = (num_blocks + 1 + num_host_blocks) * layers * config.kv_size * block_size * 2 * 4
        _check_memory(total, num_blocks, num_host_blocks, block_size)
        block = (config.num_kv_heads, block_size, config.head_dim)
        try:
            self.keys, self.values = (torch.zeros(layers, num_blocks + 1, *block) for _ in range(2))
            self.host_keys, self.host_values = (torch.zeros(layers, num_host_blocks, *block) for _ in range(2))
        except (RuntimeError, MemoryError) as error:
            raise ModelError(_too_large(total, num_blocks, num_host_blocks, block_size)) from error

    @property
    def scratch(self) -> int:
        """The block that padding tokens write to; no request ever owns it."""
        return self.num_blocks

    def write(self, layer: int, keys: Tensor, values: Tensor, inputs: StepInputs) -> None:
        """Store this step's keys and values [tokens, kv heads, dim] at each token's block and slot."""
        self.keys[layer][inputs.blocks, :, inputs.slots] = keys
        self.values[layer][inputs.blocks, :, inputs.slots] = values

    def apply(self, copies: list[BlockCopy]) -> None:
        """Move whole blocks, in order: "copy" within the pool, "out" to the host store, "in" back from it."""
        for copy in copies:
            pools = {
                "copy": (self.keys, self.values, self.keys, self.values),
                "out": (self.keys, self.values, self.host_keys, self.host_values),
                "in": (self.host_keys, self.host_values, self.keys, self.values),
            }.get(copy.kind)
            if pools is None:
                raise BlockError(f"block copy of unknown kind {copy.kind!r}")
            self._check(copy)
            from_keys, from_values, to_keys, to_values = pools
            to_keys[:, copy.target] = from_keys[:, copy.source]
            to_values[:, copy.target] = from_values[:, copy.source]

    def _check(self, copy: BlockCopy) -> None:
        sources = self.num_host_blocks if copy.kind == "in" else self.num_blocks
        targets = self.num_host_blocks if copy.kind == "out" else self.num_blocks
        if not (0 <= copy.source < sources and 0 <= copy.target < targets):
            raise BlockError(
                f"copy {copy.kind!r} of block {copy.source} to {copy.target}: the pool has {self.num_blocks} blocks, "
                f"the host store {self.num_host_blocks}"
            )


def _check_memory(total: int, num_blocks: int, num_host_blocks: int, block_size: int) -> None:
    """Refuse a pool larger than the machine: Linux would grant it and kill the process when it is filled."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return
    if total > physical:
        reason = _too_large(total, num_blocks, num_host_blocks, block_size)
        raise ModelError(f"{reason} (this machine has {physical / 2**30:.1f} GiB)")


def _too_large(total: int, num_blocks: int, num_host_blocks: int, block_size: int) -> str:
    return (
        f"no memory for keys and values: {num_blocks} + {num_host_blocks} host blocks of {block_size} tokens need "
        f"{total / 2**30:.2f} GiB; take fewer blocks"
    )
