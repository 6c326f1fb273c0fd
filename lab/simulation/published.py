"""Iteration times that others published, beside ours: checks of the order of magnitude, not fits and not bars.

Both sources measure serving engines of their time, host included, which ours leaves to `step_overhead`. Sarathi's own
breakdown says how much that can be: of 68 ms for a decode of 4 rows, 25.5 are linear layers and 3.0 attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.plan import Row, StepPlan
from lab.request import Request
from lab.simulation.hardware import Device
from lab.simulation.model import SimulatedModel, simulated
from lab.simulation.profiles import sarathi_chunked, sarathi_iterations, sarathi_linear

#: Context of Sarathi's decode iterations, which the released file does not name: an assumption.
SARATHI_CONTEXT = 1024


class Formula(NamedTuple):
    """DistServe's simulator (OSDI 2024, Apache-2.0), OPT on A100 80 GB SXM, milliseconds.

    Prefill a + b·Σn + c·Σn² and decode a + b·Σcontext + c·rows, for fewer than 95 rows.
    """

    model: str
    tp: int
    prefill: tuple[float, float, float]
    decode: tuple[float, float, float]


DISTSERVE = (
    Formula("opt-13b", 1, (18.1, 0.1019, 7.12e-6), (19.93, 6.27e-4, 0.0385)),
    Formula("opt-66b", 4, (29.44, 0.1514, 8.32e-6), (30.76, 4.52e-4, 0.0633)),
    Formula("opt-66b", 8, (25.49, 0.1066, 3.39e-6), (23.16, 2.27e-4, 0.0480)),
)


class Check(NamedTuple):
    """One published step time beside ours; `error` is ours / theirs − 1."""

    source: str
    model: str
    step: str
    theirs_s: float
    ours_s: float
    error: float


def prefill(tokens: int) -> StepPlan:
    """One prompt, whole."""
    return StepPlan([Row(Request(0, None, num_prompt=tokens), 0, tokens, samples=True)])


def chunks(tokens: int, size: int) -> list[StepPlan]:
    """One prompt in chunks of `size`, the last of which may be smaller."""
    request = Request(0, None, num_prompt=tokens)
    starts = range(0, tokens, size)
    counts = [min(size, tokens - start) for start in starts]
    return [
        StepPlan([Row(request, start, count, samples=start + count == tokens)])
        for start, count in zip(starts, counts, strict=True)
    ]


def decode(rows: int, context: int) -> StepPlan:
    """`rows` requests that each read `context` keys."""
    requests = [Request(number, None, num_prompt=context) for number in range(rows)]
    return StepPlan([Row(request, context - 1, 1, samples=True) for request in requests])


def check(source: str, model: SimulatedModel, step: str, plan: StepPlan, theirs: float) -> Check:
    """Our price of `plan` beside `theirs` (seconds)."""
    ours = model.price(plan)
    return Check(source, model.name, step, theirs, ours, ours / theirs - 1)


def distserve(device: Device) -> Iterator[Check]:
    """Prefills of 512 to 2,048 tokens and decodes of 1 to 64 rows at a context of 512."""
    for formula in DISTSERVE:
        model = simulated(formula.model, device, tp=formula.tp)
        a, b, c = formula.prefill
        for n in (512, 1024, 2048):
            yield check("DistServe", model, f"prefill of {n}", prefill(n), (a + b * n + c * n * n) / 1e3)
        a, b, c = formula.decode
        for rows in (1, 16, 64):
            theirs = (a + b * rows * 512 + c * rows) / 1e3
            yield check("DistServe", model, f"decode of {rows} at 512", decode(rows, 512), theirs)


def sarathi(folder: Path, device: Device) -> Iterator[Check]:
    """Yi-34B on two A100 PCIe (Sarathi-Serve, OSDI 2024; Apache-2.0): figures 2 and 9, and table 2's linear layers."""
    model = simulated("yi-34b-200k", device, tp=2)
    decodes, prefills = sarathi_iterations(folder)
    for rows, theirs in decodes.items():
        yield check("Sarathi", model, f"decode of {rows}", decode(rows, SARATHI_CONTEXT), theirs)
    for tokens, theirs in prefills.items():
        yield check("Sarathi", model, f"prefill of {tokens}", prefill(tokens), theirs)
    for tokens, theirs in sarathi_linear(folder).items():
        ours = model.shape.layers * model.costs.layer_seconds(tokens)
        yield Check("Sarathi", model.name, f"linear of {tokens}", theirs, ours, ours / theirs - 1)
    for (tokens, size), theirs in sarathi_chunked(folder).items():
        ours = sum(model.price(plan) for plan in chunks(tokens, size))
        yield Check("Sarathi", model.name, f"{tokens} by {size}", theirs, ours, ours / theirs - 1)
