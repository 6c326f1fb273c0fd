"""Carries a plan out on real tensors: block copies, one forward pass, sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter

import torch
from torch import Tensor

from lab.errors import BadRequest, ModelError
from lab.execution import flash_attention
from lab.execution.attention import Attention, PaddedAttention, make_attention
from lab.execution.cuda_cache import DeviceKV
from lab.execution.cuda_graphs import DecodeGraphs
from lab.execution.cuda_inputs import on_device
from lab.execution.device import current, explain_memory, stream_id
from lab.execution.inputs import StepInputs, build_inputs
from lab.execution.kv_cache import PagedKV
from lab.execution.model import Model, load_model
from lab.execution.recording import NotRecorded, RecordedSteps
from lab.execution.sampling import sample
from lab.execution.streams import surroundings
from lab.plan import Row, StepPlan, StepResult
from lab.request import Request

GRAPHED_AHEAD = 32  # rows: larger decode steps get their graph when they first come up


class ModelRunner:
    """Runs plans for `model` over its own pool of `num_blocks` blocks (implements lab.plan.Runner).

    `attention` names the backend of packed plans, "auto" the fastest that serves this model and block size; padded
    plans always use the padded one. Plans over disjoint blocks may be computed at the same time from different
    threads (see `lane`), and several runners may share a model. Unless `graphs` is False, steps are recorded and
    replayed: decodes as CUDA graphs on a GPU (cuda_graphs.py), all but the largest as lists of jobs on the CPU
    (recording.py).
    """

    def __init__(
        self,
        model: Model,
        num_blocks: int,
        block_size: int = 16,
        attention: str = "auto",
        num_host_blocks: int = 0,
        graphs: bool = True,
    ):
        if num_blocks < 1 or block_size < 1 or num_host_blocks < 0:
            raise ModelError(f"a pool of {num_blocks} blocks of {block_size} tokens: both must be at least 1")
        self.model = model
        self.packed = choose_attention(model, block_size, attention)
        self.padded = PaddedAttention()
        on_gpu = model.device.type == "cuda"
        kind = DeviceKV if on_gpu else PagedKV
        shape = num_blocks, block_size, num_host_blocks
        self.cache = kind(model.config, *shape, model.device, model.dtype, self.packed.name == "paged_cpu")
        self._graphs: dict[int, DecodeGraphs] = {}  # by stream
        self._make_graphs: Callable[[], DecodeGraphs] | None = None
        self._idle: list[RecordedSteps] = []  # of the CPU: whoever computes a step takes one
        self._records = graphs and self.packed.name == "paged_cpu"
        if on_gpu and graphs and self.packed.name in ("flash", "sdpa"):
            with current(model.device), explain_memory("CUDA graphs", "take fewer blocks", model.device):
                self.use_graphs()

    def use_graphs(self, **options: object) -> None:
        """Serve decode steps from graphs; `options` are DecodeGraphs' own."""
        self._make_graphs = lambda: self._new_graphs(**options)
        self.graphs()

    def graphs(self) -> DecodeGraphs | None:
        """Those of the current stream: lanes that run at the same time must not work in the same memory."""
        stream = stream_id(self.model.device)
        if self._make_graphs and stream not in self._graphs:
            self._graphs[stream] = self._make_graphs()
        return self._graphs.get(stream)

    def _new_graphs(self, **options: object) -> DecodeGraphs:
        """flash-attn's are recorded at once, for up to RECORDED rows; those of a backend that gathers contexts depend
        on their length as well, and are recorded when they first come up.
        """
        flash, cache = self.packed.name == "flash", self.cache
        longest = min(-(-self.model.max_context // cache.block_size), cache.num_blocks)
        made = DecodeGraphs(
            lambda inputs: self.model.forward(inputs, cache, self.packed),
            self.model.device,
            cache.block_size,
            _at_least(longest) if flash else _next_power_of_two,
            **options,
        )
        if flash:
            made.record_ahead(min(GRAPHED_AHEAD, cache.num_blocks), cache.scratch)
        return made

    def lane(self, lane: int, lanes: int, fraction: float = 1.0) -> AbstractContextManager[None]:
        """What a thread enters that computes one of several lanes of this runner's plans: see streams.py."""
        return surroundings(self.model.device, lane, lanes, fraction)

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

        On a GPU the host waits once, at the end: for the sampled tokens, or where none are, for the step.

        Raises BlockError where a row's block table is too short or a block id is outside the pool, BadRequest
        where a token id is outside the vocabulary, and ModelError where memory is too small for the step.
        """
        if plan.repeat != 1:
            raise ModelError(f"a plan repeats {plan.repeat} times: only a pricing runner can advance several steps")
        started = perf_counter()
        tokens: list[int | None] = [None] * len(plan.rows)
        margins: list[float | None] = [None] * len(plan.rows)
        size = plan.num_tokens + plan.num_padding
        advice = "take a smaller token budget or batch, or fewer blocks"
        what, device = f"a step of {size} tokens over {len(plan.rows)} rows", self.model.device
        with current(device), explain_memory(what, advice, device):
            self.cache.apply(plan.copies)
            sampling = [index for index, row in enumerate(plan.rows) if row.samples]
            with self._recorded() as recorded:  # whose memory the logits lie in
                logits = self._logits(plan, recorded) if size else None
                if sampling:
                    sampled = sample(logits, [plan.rows[index] for index in sampling])
                    for index, token, margin in zip(sampling, sampled.tokens, sampled.margins, strict=True):
                        tokens[index], margins[index] = token, margin
                elif device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()
        return StepResult(
            tokens, margins, perf_counter() - started, flops=float(self.flops(plan)), bytes=float(self.bytes(plan))
        )

    @contextmanager
    def _recorded(self) -> Iterator[DecodeGraphs | RecordedSteps | None]:
        """The recordings that this thread may use inside, if any."""
        if not self._records:
            yield self.graphs()
            return
        try:
            steps = self._idle.pop()
        except IndexError:
            model, cache, packed = self.model, self.cache, self.packed  # not self: a circle would keep the pool
            steps = RecordedSteps(lambda inputs: model.forward(inputs, cache, packed))
        try:
            yield steps
        finally:
            self._idle.append(steps)

    def _logits(self, plan: StepPlan, recorded: DecodeGraphs | RecordedSteps | None = None) -> Tensor:
        inputs = build_inputs(plan, self.cache.block_size, self.cache.num_blocks)
        self._check_tokens(inputs.token_ids)
        if plan.attention == "padded":
            return self._compute(inputs, self.padded)
        logits = None
        if recorded:
            try:
                logits = recorded.run(inputs)
            except NotRecorded:
                self._records = False
        return self._compute(inputs, self.packed) if logits is None else logits

    def _compute(self, inputs: StepInputs, attention: Attention) -> Tensor:
        return self.model.forward(on_device(inputs, self.model.device), self.cache, attention)

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


def choose_attention(model: Model, block_size: int, name: str = "auto") -> Attention:
    """The backend of packed plans. ModelError where the one asked for cannot serve this model or block size."""
    sizes = (model.device, model.dtype, model.config.head_dim, block_size)
    plain = model.device.type == "cpu" and model.dtype == torch.float32
    if name == "auto":
        name = "paged_cpu" if plain else "sdpa"
        if flash_attention.refusal(*sizes) is None and flash_attention.is_installed():
            name = "flash"
    if name == "paged_cpu" and not plain:
        raise ModelError(f"attention 'paged_cpu' is for float32 on the CPU, not for {model.dtype} on {model.device}")
    if name == "flash" and (reason := flash_attention.refusal(*sizes)):
        raise ModelError(reason)
    return make_attention(name)


def _at_least(longest: int) -> Callable[[int], int]:
    return lambda width: max(longest, width)


def _next_power_of_two(width: int) -> int:
    return 1 << (width - 1).bit_length()


def warm_up() -> None:
    """Compile (or load from numba's cache) every kernel that a runner uses; set-up calls this once."""
    runner = ModelRunner(load_model("tiny"), num_blocks=8)
    request = Request(id=0, prompt=list(range(100)), block_table=list(range(7)))
    for start, num_tokens in ((0, 99), (99, 1)):  # enough to share among the cores; too little to share
        runner.run(StepPlan([Row(request, start, num_tokens, samples=num_tokens == 1)]))
