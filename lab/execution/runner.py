"""Carries a plan out on real tensors: block copies, one forward pass, sampling."""

from __future__ import annotations

from time import perf_counter

from torch import Tensor

from lab.errors import BadRequest, ModelError
from lab.execution.attention import PaddedAttention, make_attention
from lab.execution.inputs import build_inputs
from lab.execution.kv_cache import PagedKV
from lab.execution.model import Model, load_model
from lab.execution.sampling import sample
from lab.plan import Row, StepPlan, StepResult
from lab.request import Request


class ModelRunner:
    """Runs plans for `model` over its own pool of `num_blocks` blocks (implements lab.plan.Runner).

    `attention` names the backend of packed plans; padded plans always use the padded one. One runner computes one
    plan at a time; several runners may share a model, also from different threads.
    """

    def __init__(
        self,
        model: Model,
        num_blocks: int,
        block_size: int = 16,
        attention: str = "paged_cpu",
        num_host_blocks: int = 0,
    ):
        if num_blocks < 1 or block_size < 1 or num_host_blocks < 0:
            raise ModelError(f"a pool of {num_blocks} blocks of {block_size} tokens: both must be at least 1")
        self.model = model
        self.packed = make_attention(attention)
        self.padded = PaddedAttention()
        self.cache = PagedKV(model.config, num_blocks, block_size, num_host_blocks)

    def check(self, request: Request) -> None:
        """Raise BadRequest for what this model can never compute: no token ids, or one outside its vocabulary."""
        if request.prompt is None:
            raise BadRequest(f"request {request.id} comes from a trace without text: a real model needs token ids")
        size = self.model.config.vocab_size
        for place, token in enumerate(request.prompt):
            if not 0 <= token < size:
                raise BadRequest(f"request {request.id}: token {token} at {place} is outside the vocabulary of {size}")

    def run(self, plan: StepPlan) -> StepResult:
        """Compute `plan` in real time. Tokens and margins are None for rows that do not sample.

        Raises BlockError where a row's block table is too short or a block id is outside the pool, and
        BadRequest where a token id is outside the vocabulary.
        """
        if plan.repeat != 1:
            raise ModelError(f"a plan repeats {plan.repeat} times: only a pricing runner can advance several steps")
        started = perf_counter()
        tokens: list[int | None] = [None] * len(plan.rows)
        margins: list[float | None] = [None] * len(plan.rows)
        self.cache.apply(plan.copies)
        if plan.num_tokens + plan.num_padding:
            backend = self.padded if plan.attention == "padded" else self.packed
            inputs = build_inputs(plan, self.cache.block_size, self.cache.num_blocks)
            self._check_tokens(inputs.token_ids)
            logits = self.model.forward(inputs, self.cache, backend)
            sampling = [index for index, row in enumerate(plan.rows) if row.samples]
            if sampling:
                sampled = sample(logits, [plan.rows[index] for index in sampling])
                for index, token, margin in zip(sampling, sampled.tokens, sampled.margins, strict=True):
                    tokens[index], margins[index] = token, margin
        return StepResult(tokens, margins, perf_counter() - started)

    def _check_tokens(self, token_ids: Tensor) -> None:
        low, high = (int(bound) for bound in token_ids.aminmax())
        if low < 0 or high >= self.model.config.vocab_size:
            wrong = low if low < 0 else high
            raise BadRequest(f"token id {wrong} is outside the model's vocabulary of {self.model.config.vocab_size}")

    def flops(self, plan: StepPlan) -> int:
        """Floating-point operations of this plan, padding tokens included (attention rectangles counted unpadded)."""
        seen = 0
        for row in plan.rows:
            end = row.start + row.num_tokens
            seen += row.num_tokens * (row.start + 1 + end) // 2 + row.padding * max(1, end)
        sampled = sum(row.samples for row in plan.rows)
        return self.model.step_flops(plan.num_tokens + plan.num_padding, seen, sampled)

    def bytes(self, plan: StepPlan) -> int:
        """Bytes this plan moves at least: weights once, each row's keys and values, and what it writes."""
        resident = sum(row.start + row.num_tokens for row in plan.rows)
        return self.model.step_bytes(plan.num_tokens + plan.num_padding, resident)


def warm_up() -> None:
    """Compile (or load from numba's cache) every kernel that a runner uses; set-up calls this once."""
    runner = ModelRunner(load_model("tiny"), num_blocks=8)
    request = Request(id=0, prompt=list(range(100)), block_table=list(range(7)))
    for start, num_tokens in ((0, 99), (99, 1)):  # enough to share among the cores; too little to share
        runner.run(StepPlan([Row(request, start, num_tokens, samples=num_tokens == 1)]))
