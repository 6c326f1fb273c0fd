"""A device table with a typing error, for exercise 11.4: published step times, and prices made from wrong peaks."""

from __future__ import annotations

from dataclasses import replace

from lab.simulation import accuracy
from lab.simulation.costs import Costs
from lab.simulation.shapes import model_shape


def published(gpu: str) -> dict[int, float]:
    """Tokens in the step -> published milliseconds of all linear layers of Llama-2-7B ("a100", "h100" or "a40")."""
    return {int(tokens): real for tokens, (real, _) in accuracy.stored()["fitted"][gpu]["step_ms"].items()}


def priced(gpu: str, peak: float = 1.0, bandwidth: float = 1.0) -> dict[int, float]:
    """The same from the price list, with the device's peak FLOP/s and its bandwidth multiplied by these factors."""
    shape = model_shape(accuracy.FITTED_ON)
    right = accuracy.refitted(accuracy.GPUS[gpu][0], accuracy.stored())
    wrong = replace(right, peak_flops=right.peak_flops * peak, bandwidth=right.bandwidth * bandwidth)
    costs = Costs(shape, wrong)
    return {tokens: 1e3 * shape.layers * costs.layer_seconds(tokens) for tokens in published(gpu)}
