"""The batching curve: what a decode step costs as more requests share it, measured on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

from lab.execution.model import Model
from lab.execution.recording import NotRecorded, Workspace, from_here_sampled, recording
from lab.execution.runner import ModelRunner
from lab.plan import Row, StepPlan
from lab.request import Request

BLOCK_SIZE = 16


class CurvePoint(NamedTuple):
    """One batch size. `step_ms` is the median decode step, `tokens_per_s` is batch / step."""

    batch: int
    step_ms: float
    tokens_per_s: float


def decode_curve(
    model: Model,
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32),
    context: int = 64,
    steps: int = 12,
    recorded: bool = True,
) -> list[CurvePoint]:
    """Time `steps` decode steps for each batch size, all requests `context` tokens long when they begin.

    `recorded=False` has Python hand out every job of every step, instead of repeating a list of them (recording.py; on
    a GPU cuda_graphs.py).

    The batch sizes take turns, so that a noisy moment of the machine hits all of them; one untimed step each goes
    first. Prompts are not computed: their keys and values are one made-up number, written to the whole pool so that
    every block is memory of its own. The tokens therefore mean nothing and are thrown away.
    """
    crowds = [_Crowd(model, batch, context, steps + 1, recorded) for batch in batches]
    for crowd in crowds:
        crowd.step()
    timings: list[list[float]] = [[] for _ in crowds]
    for _ in range(steps):
        for crowd, seconds in zip(crowds, timings, strict=True):
            seconds.append(crowd.step())
    return [
        CurvePoint(crowd.size, 1e3 * median(seconds), crowd.size / median(seconds))
        for crowd, seconds in zip(crowds, timings, strict=True)
    ]


class ProductPoint(NamedTuple):
    """One batch size: a whole decode step and its matrix products alone, medians, and their ratio."""

    batch: int
    step_ms: float
    products_ms: float
    ratio: float


def product_share(
    model: Model, batches: Sequence[int] = (16, 32), context: int = 128, steps: int = 12
) -> list[ProductPoint]:
    """How much longer a decode step is than its own matrix products: the price of attention and everything else.

    The two take turns. The products are computed as they are in the step: from a recording, where steps are recorded.
    """
    points = []
    for batch in batches:
        crowd, whole, alone = _Crowd(model, batch, context, steps + 1), [], []
        products = products_of_step(model, batch, batch)
        crowd.step()
        for _ in range(steps):
            whole.append(crowd.step())
            started = perf_counter()
            products()
            alone.append(perf_counter() - started)
        ratio = median(whole) / median(alone)
        points.append(ProductPoint(batch, 1e3 * median(whole), 1e3 * median(alone), ratio))
    return points


def products_of_step(model: Model, tokens: int, sampled: int) -> Callable[[], object]:
    """Computes the matrix products of a step alone, on made-up input; only `sampled` tokens go through the head."""
    layers = model.weights.layers
    products = [product for layer in layers for product in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    inputs = {product.shape[1]: torch.ones(tokens, product.shape[1]) for product in products}
    last = torch.ones(sampled, model.config.hidden_size)

    @torch.inference_mode()
    def work() -> None:
        for product in products:
            product(inputs[product.shape[1]])
        from_here_sampled()
        model.weights.head(last)

    try:
        with recording(Workspace()) as jobs:
            work()
    except NotRecorded:
        return work
    jobs.close()
    return lambda held=work: jobs.replay(tokens, sampled)


class _Crowd:
    """`size` requests with their own blocks, each with `context` tokens resident and one to compute."""

    def __init__(self, model: Model, size: int, context: int, steps: int, recorded: bool = True):
        self.size = size
        blocks = -(-(context + steps) // BLOCK_SIZE)
        self.runner = ModelRunner(model, size * blocks, BLOCK_SIZE, graphs=recorded)
        for pool in (self.runner.cache.keys, self.runner.cache.values):
            pool.fill_(0.01)  # pages that were never written to would all be the same page of zeros
        self.requests = [Request(i, [1] * (context + 1), num_computed=context) for i in range(size)]
        for request in self.requests:
            request.block_table = list(range(request.id * blocks, (request.id + 1) * blocks))

    def step(self) -> float:
        """One token for everybody; returns its seconds."""
        result = self.runner.run(StepPlan([Row(r, r.num_computed, 1, samples=True) for r in self.requests]))
        for request, token in zip(self.requests, result.tokens, strict=True):
            request.num_computed += 1
            request.num_output += 1
            request.output.append(token)
        return result.seconds
