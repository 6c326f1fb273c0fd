"""A step's arrays on their way to the GPU: one pinned buffer, one copy, nobody waits."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from lab.execution.device import send
from lab.execution.inputs import PADDING_TOKEN, StepInputs

#: The tensors of StepInputs, in the order in which they lie in the buffer.
FIELDS = ("token_ids", "positions", "visible", "blocks", "slots", "last", "tables")


def pack(inputs: StepInputs) -> Tensor:
    """All tensors of `inputs` behind one another, int64."""
    return torch.cat([getattr(inputs, name).flatten() for name in FIELDS])


def unpack(flat: Tensor, like: StepInputs) -> StepInputs:
    """`like` with its tensors replaced by views of `flat`; its host lists stay."""
    shapes = [getattr(like, name).shape for name in FIELDS]
    parts = flat.split([prod(shape) for shape in shapes])
    return replace(like, **{name: part.view(shape) for name, part, shape in zip(FIELDS, parts, shapes, strict=True)})


def on_device(inputs: StepInputs, device: torch.device) -> StepInputs:
    """`inputs` with its tensors on `device`; on the CPU that is `inputs` itself."""
    return inputs if device.type == "cpu" else unpack(send(pack(inputs), device), inputs)


def padding_rows(rows: int, width: int, block_size: int, scratch: int) -> StepInputs:
    """A step of nothing but padding, with `rows` rows of one token and block tables of `width`.

    A padding row passes through every layer, writes to the scratch block, sees one slot of it, and its logits are
    thrown away. The contexts are the largest that tables of this width hold, so that the host's lists are the same
    for every step of this shape.
    """

    def of(value: int) -> Tensor:
        return torch.full((rows,), value)

    return StepInputs(
        token_ids=of(PADDING_TOKEN),
        positions=of(0),
        visible=of(1),
        blocks=of(scratch),
        slots=of(0),
        tables=torch.full((rows, width), scratch),
        row_starts=list(range(rows + 1)),
        real=[1] * rows,
        contexts=[width * block_size] * rows,
        width=width * block_size,
        last=torch.arange(rows),
        scratch=scratch,
    )


def pad_decodes(inputs: StepInputs, rows: int, width: int, block_size: int) -> StepInputs:
    """A step of decodes with padding rows after its own, and the scratch block behind its block tables."""
    padded = padding_rows(rows, width, block_size, inputs.scratch)
    own, old_width = inputs.tables.shape
    for name in ("token_ids", "positions", "visible", "blocks", "slots"):
        getattr(padded, name)[:own] = getattr(inputs, name)
    padded.tables[:own, :old_width] = inputs.tables
    return padded
