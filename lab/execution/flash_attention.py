"""flash-attn's kernel for rows of different lengths, walking our block tables in place (arXiv:2307.08691).

What it asks for (flash-attn 2.8, `flash_attn_varlen_func` with `block_table`): an Ampere GPU or newer, float16 or
bfloat16, heads of at most 256, blocks of a multiple of 256 tokens, int32 lengths and tables. The keys come as
[blocks, slots, kv heads, dim]; only the last dimension must lie in one piece, so a view of our pool will do.

`max_seqlen_k` is a number of the host, so a CUDA graph keeps the one it was recorded with. It decides how a context
is cut into pieces: too small, and the end of a longer context is left out without a word (Dao-AILab/flash-attention,
issue 1164); too large costs a little speed (issue 1664). Graphs are therefore recorded with the largest there can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.errors import ModelError
from lab.execution.device import send
from lab.execution.inputs import StepInputs

BLOCK_MULTIPLE = 256
LARGEST_HEAD = 256


@dataclass(slots=True)
class VarlenArguments:
    """What the kernel is told about a step, under its own names. A "sequence" is a run of tokens of one row."""

    cu_seqlens_q: Tensor  # [sequences + 1] int32, where each sequence's tokens begin; the last is their number
    cu_seqlens_k: Tensor  # [sequences + 1] int32, the same for the keys that the sequence's last token sees
    max_seqlen_q: int
    max_seqlen_k: int
    block_table: Tensor  # [sequences, blocks] int32

    def by_name(self) -> dict[str, Tensor | int]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def varlen_arguments(inputs: StepInputs) -> VarlenArguments:
    """Describe a step for flash-attn with causal=True, whose mask is aligned to the end of both lengths.

    Token i of n of a sequence with c keys then sees c - n + i + 1 of them: right for a chunk at any offset, as long
    as the chunk ends where the context does. A row's padding would break that, so it becomes a sequence of its own.
    For a step of decodes everything but the visible lengths is the same in every step, and those are read on the
    device: so the call can be captured in a CUDA graph.
    """
    device = inputs.visible.device
    if inputs.one_token_each:
        rows = len(inputs.real)
        cu_seqlens_q = torch.arange(rows + 1, dtype=torch.int32, device=device)
        cu_seqlens_k = F.pad(inputs.visible.cumsum(0), (1, 0)).to(torch.int32)
        return VarlenArguments(cu_seqlens_q, cu_seqlens_k, 1, max(inputs.contexts), inputs.tables.to(torch.int32))
    sequences = _sequences(inputs)
    tokens, keys, rows = (list(column) for column in zip(*sequences, strict=True))
    lengths = torch.tensor([[0, *tokens], [0, *keys]]).cumsum(1).to(torch.int32)
    cu_seqlens_q, cu_seqlens_k = send(lengths, device)
    row_of = send(torch.tensor(rows), device)
    table = inputs.tables.to(torch.int32)[row_of]
    return VarlenArguments(cu_seqlens_q, cu_seqlens_k, max(tokens), max(keys), table)


def _sequences(inputs: StepInputs) -> list[tuple[int, int, int]]:
    """(tokens, keys, row): each row's real tokens, then its padding."""
    found = []
    for row, (real, context) in enumerate(zip(inputs.real, inputs.contexts, strict=True)):
        padding = inputs.row_starts[row + 1] - inputs.row_starts[row] - real
        found += [(count, context, row) for count in (real, padding) if count]
    return found


class FlashAttention:
    """Nothing is gathered and nothing is padded. `function` is flash_attn_varlen_func unless a test brings its own."""

    name = "flash"

    def __init__(self, function: Callable[..., Tensor] | None = None):
        self._function = function or flash_attn()

    def prepare(self, inputs: StepInputs, num_kv_heads: int, block_size: int) -> VarlenArguments:
        return varlen_arguments(inputs)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, work: VarlenArguments) -> Tensor:
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)  # [blocks, slots, kv heads, dim], no copy
        return self._function(queries.contiguous(), keys, values, causal=True, **work.by_name())


def flash_attn() -> Callable[..., Tensor]:
    """The kernel, or ModelError where it is not installed or does not load."""
    try:
        return import_module("flash_attn").flash_attn_varlen_func
    except Exception as error:  # a build for another torch or CUDA fails in ways of its own
        raise ModelError(
            f"attention 'flash' needs the package flash-attn, which cannot be imported here ({error}): install it "
            "with `pip install '.[gpu]'` (NVIDIA, Ampere or newer), or take 'sdpa', which needs torch alone"
        ) from error


def is_installed() -> bool:
    try:
        flash_attn()
    except ModelError:
        return False
    return True


def refusal(device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> str | None:
    """Why flash-attn cannot serve these sizes here, in a sentence; None where it can."""
    if device.type != "cuda":
        return f"flash-attn runs on NVIDIA GPUs, the model is on {device}: take 'sdpa'"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"flash-attn needs an Ampere GPU or newer, {torch.cuda.get_device_name(device)} is older: take 'sdpa'"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"flash-attn computes in float16 and bfloat16, the model is in {dtype}: take 'sdpa'"
    if head_dim > LARGEST_HEAD:
        return f"flash-attn serves heads of at most {LARGEST_HEAD}, this model's have {head_dim}: take 'sdpa'"
    if block_size % BLOCK_MULTIPLE:
        return (
            f"flash-attn walks blocks of a multiple of {BLOCK_MULTIPLE} tokens, these have {block_size}: "
            f"take block_size={BLOCK_MULTIPLE}, or 'sdpa'"
        )
    return None
