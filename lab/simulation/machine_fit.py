"""Fits a device to measured steps of the real engine: the same price list as for GPUs, with numbers of this machine.

A CPU's matrix product is far from a roofline at some sizes, so the projections get a factor per measured token count
(`Fit.correction`). For given shares of attention and a given cost per row that factor has a closed form; the shares
and the cost per row are searched. Rectangles come last: their attention is another kernel, with shares of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from lab.errors import BadPolicy
from lab.simulation.costs import Costs
from lab.simulation.fit import pattern_search
from lab.simulation.hardware import Device, Fit
from lab.simulation.measuring import Point
from lab.simulation.shapes import ModelShape
from lab.simulation.work import StepWork, work_of


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step: its work, its seconds, and how much it counts."""

    work: StepWork
    seconds: float
    kind: str


def samples(points: Sequence[Point]) -> list[Sample]:
    """The medians of measured points."""
    return [Sample(work_of(point.plan()), point.time, point.kind) for point in points if point.seconds]


def fit_device(found: Sequence[Sample], shape: ModelShape, device: Device) -> Device:
    """`device` with a fit to `found`, steps of `shape` in float32. Raises BadPolicy for fewer than three token counts.

    `mbu` and `mfu` are those of the whole step, at one token and at the best measured size; `correction` has what is
    left. Deterministic.
    """
    padded = [sample for sample in found if sample.work.padded]
    found = [sample for sample in found if not sample.work.padded]
    counts = sorted({sample.work.tokens for sample in found})
    if len(counts) < 3:
        raise BadPolicy(f"steps of {len(counts)} different sizes are too few to fit a machine: three at least")
    plain = replace(device, fit=_shares(found, shape, device))

    def build(values: Sequence[float]) -> Device:
        attention = {"attention_mfu": 2.0 ** values[0], "attention_mbu": 2.0 ** values[1]}
        fit = replace(plain.fit, row_overhead=values[2] * 1e-3, **attention)
        return _corrected(found, shape, replace(plain, fit=fit), counts)

    def error(values: Sequence[float]) -> float:
        costs = Costs(shape, build(values), dtype="fp32")
        return mean(abs(costs.seconds(sample.work) / sample.seconds - 1) for sample in found)

    best = pattern_search(error, (-2.0, -1.0, 0.0), (1.0, 1.0, 0.5), (-9.0, -9.0, 0.0), (2.0, 4.0, 20.0))
    return _with_rectangles(padded, shape, build(best)) if padded else build(best)


def _with_rectangles(found: Sequence[Sample], shape: ModelShape, device: Device) -> Device:
    """`device` with the shares and the constant that come nearest to rectangles; all else stays."""

    def build(values: Sequence[float]) -> Device:
        rectangle = (2.0 ** values[0], 2.0 ** values[1], values[2] * 1e-4)
        return replace(device, fit=replace(device.fit, rectangle=rectangle))

    def error(values: Sequence[float]) -> float:
        costs = Costs(shape, build(values), dtype="fp32")
        return mean(abs(costs.seconds(sample.work) / sample.seconds - 1) for sample in found)

    return build(pattern_search(error, (-3.0, -3.0, 1.0), (1.0, 1.0, 0.5), (-12.0, -12.0, 0.0), (2.0, 4.0, 100.0)))


def _shares(found: Sequence[Sample], shape: ModelShape, device: Device) -> Fit:
    """How near whole steps come to the device's peaks: memory at the smallest, arithmetic at the best size."""
    costs = Costs(shape, device, dtype="fp32")
    smallest = min(found, key=lambda sample: sample.work.tokens)
    mbu = costs.bytes(smallest.work) / smallest.seconds / device.bandwidth
    mfu = max(costs.flops(sample.work) / sample.seconds for sample in found) / device.peak_flops
    return Fit(mfu=mfu, mbu=mbu, overhead=0.0, step_overhead=0.0, source=device.fit.source)


def _corrected(found: Sequence[Sample], shape: ModelShape, device: Device, counts: Sequence[int]) -> Device:
    """The factor of the projections at each token count that makes the squared relative errors there least."""
    costs = Costs(shape, device, dtype="fp32")
    factors = []
    for tokens in counts:
        layers = shape.layers * costs.layer_seconds(tokens)
        top = bottom = 0.0
        for sample in found:
            if sample.work.tokens == tokens:
                rest = costs.seconds(sample.work) - layers
                top += (sample.seconds - rest) * layers / sample.seconds**2
                bottom += (layers / sample.seconds) ** 2
        factors.append((tokens, max(0.05, top / bottom)))
    return replace(device, fit=replace(device.fit, correction=tuple(factors)))


def errors(found: Sequence[Sample], shape: ModelShape, device: Device) -> dict[str, dict[str, float]]:
    """Median and largest relative error of the fit over the steps it was fitted to, by kind and over all."""
    costs = Costs(shape, device, dtype="fp32")
    misses: dict[str, list[float]] = {}
    for sample in found:
        miss = abs(costs.seconds(sample.work) / sample.seconds - 1)
        for kind in (sample.kind, "all"):
            misses.setdefault(kind, []).append(miss)
    return {
        kind: {"median": median(values), "max": max(values), "steps": len(values)} for kind, values in misses.items()
    }


def prices(points: Sequence[Point], shape: ModelShape, device: Device) -> list[float]:
    """Seconds that the fit says, point by point."""
    costs = Costs(shape, device, dtype="fp32")
    return [costs.seconds(work_of(point.plan())) for point in points]
