"""Keys and values in blocks: the real bytes behind the block ids that memory hands out.

One pool per model, `num_blocks` blocks for requests plus one scratch block (id `num_blocks`) that takes what
padding tokens write. The host store keeps swapped-out blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import BlockError
from lab.execution.config import ModelConfig
from lab.execution.device import check_room, explain_memory
from lab.execution.inputs import StepInputs
from lab.plan import BlockCopy

CPU = torch.device("cpu")


class PagedKV:
    """Keys and values, each [layers, blocks + 1, kv heads, slots, dim]; one head of one block lies in one piece.

    With `turned` a block's keys lie in memory as [dim, slots], so that one dimension of sixteen keys is one vector and
    the kernel of the CPU multiplies them where they are; `keys` is a view in the usual order, `keys.mT` in one piece.

    Every element is finite at all times (the pool starts at zero), so slots that are not yet written may be
    multiplied by a zero weight without harm.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
        device: torch.device = CPU,
        dtype: torch.dtype = torch.float32,
        turned: bool = True,
    ):
        self.num_blocks, self.block_size, self.num_host_blocks = num_blocks, block_size, num_host_blocks
        block_bytes = 2 * config.num_layers * config.kv_size * block_size * dtype.itemsize
        here, there = (num_blocks + 1) * block_bytes, num_host_blocks * block_bytes
        what = f"keys and values: {num_blocks} + {num_host_blocks} host blocks of {block_size} tokens"
        advice = "take fewer blocks"
        if device.type == "cpu":
            here, there = here + there, 0
        check_room(here, what, advice, device)
        check_room(there, what, advice, CPU)
        with explain_memory(f"{what} ({(here + there) / 2**30:.2f} GiB)", advice, device):
            pool = config.num_layers, num_blocks + 1, config.num_kv_heads
            slots, dim = block_size, config.head_dim
            self.values = torch.zeros(*pool, slots, dim, device=device, dtype=dtype)
            keys = torch.zeros(*pool, *((dim, slots) if turned else (slots, dim)), device=device, dtype=dtype)
            self.keys = keys.mT if turned else keys
            self._make_host_store()

    def _make_host_store(self) -> None:
        layers, _, *block = self.keys.shape
        store = (layers, self.num_host_blocks, *block)
        self.host_keys, self.host_values = (torch.zeros(store, dtype=self.keys.dtype) for _ in range(2))

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
            self.check(copy)
            from_keys, from_values, to_keys, to_values = {
                "copy": (self.keys, self.values, self.keys, self.values),
                "out": (self.keys, self.values, self.host_keys, self.host_values),
                "in": (self.host_keys, self.host_values, self.keys, self.values),
            }[copy.kind]
            to_keys[:, copy.target] = from_keys[:, copy.source]
            to_values[:, copy.target] = from_values[:, copy.source]

    def check(self, copy: BlockCopy) -> None:
        """Raise BlockError for a copy of an unknown kind or of blocks that are not there."""
        if copy.kind not in ("copy", "out", "in"):
            raise BlockError(f"block copy of unknown kind {copy.kind!r}")
        sources = self.num_host_blocks if copy.kind == "in" else self.num_blocks
        targets = self.num_host_blocks if copy.kind == "out" else self.num_blocks
        if not (0 <= copy.source < sources and 0 <= copy.target < targets):
            raise BlockError(
                f"copy {copy.kind!r} of block {copy.source} to {copy.target}: the pool has {self.num_blocks} blocks, "
                f"the host store {self.num_host_blocks}"
            )
