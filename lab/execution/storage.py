"""What storing the weights in half the memory changes: a lesson, never the default, since tokens may differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lab.errors import BadRequest, ModelError
from lab.execution.attention import make_attention
from lab.execution.inputs import build_inputs
from lab.execution.model import DEFAULT_MODEL, Model, load_model
from lab.plan import Row, StepPlan
from lab.request import Request

BLOCK_SIZE = 16


class StorageDifference(NamedTuple):
    """float16 against float32 storage of the same weights, over every position of some prompts."""

    positions: int
    largest: float  # difference of logits
    mean: float  # difference of logits, absolute
    same_next_token: float  # share of positions whose best token is the same
    smallest_margin: float  # of the float32 model's two best logits: below `largest`, a token may change


def storage_difference(
    name_or_dir: str | Path = DEFAULT_MODEL,
    prompts: Sequence[Sequence[int] | str] = ("What is the sea?",),
    models: tuple[Model, Model] | None = None,
) -> StorageDifference:
    """Load a model both ways and compare its logits for `prompts` (token ids, or text for the chat template).

    `models` are the two, float32 first, where they are loaded already. Raises BadRequest without prompts, ModelError
    where there is nothing to load and for models that are not the same one stored in these two ways.
    """
    exact, rounded = models or (load_model(name_or_dir), load_model(name_or_dir, storage="fp16"))
    if (exact.storage, rounded.storage) != ("fp32", "fp16") or exact.config != rounded.config:
        kinds = f"{exact.name} stored as {exact.storage}, {rounded.name} as {rounded.storage}"
        raise ModelError(f"one model, as fp32 and as fp16, is to be compared; these are {kinds}")
    ids = [exact.encode_chat(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    if not ids or not all(ids):
        raise BadRequest(
            f"{len(ids)} prompts, of which {sum(not one for one in ids)} are empty: give at least one token"
        )
    wanted = torch.cat([prompt_logits(exact, prompt) for prompt in ids])
    got = torch.cat([prompt_logits(rounded, prompt) for prompt in ids])
    difference = (wanted - got).abs()
    best = wanted.topk(2, dim=-1).values
    return StorageDifference(
        positions=len(wanted),
        largest=float(difference.max()),
        mean=float(difference.mean()),
        same_next_token=float((wanted.argmax(-1) == got.argmax(-1)).float().mean()),
        smallest_margin=float((best[:, 0] - best[:, 1]).min()),
    )


def prompt_logits(model: Model, prompt: Sequence[int]) -> Tensor:
    """Logits [tokens, vocab] at every position of one prompt."""
    num_blocks = -(-len(prompt) // BLOCK_SIZE)
    runner = model.runner(num_blocks, BLOCK_SIZE)
    request = Request(0, list(prompt), block_table=list(range(num_blocks)))
    inputs = build_inputs(StepPlan([Row(request, 0, len(prompt), samples=False)]), BLOCK_SIZE, num_blocks)
    inputs.last = torch.arange(len(prompt))
    return model.forward(inputs, runner.cache, make_attention("paged_cpu")).clone()
