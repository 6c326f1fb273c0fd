"""Real runs and their simulated twins: recorded plans priced again, and the same requests simulated.

replay   prices the plans of a real run one by one: nothing but the price list is tested
closed   all requests wait from the start: does the simulation, which makes its own plans, reach the same throughput?
opened   requests arrive over time: do TTFT and TPOT lie within the spread of several real runs?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from lab.errors import BadPolicy
from lab.metrics import Report, percentile
from lab.plan import Row, StepPlan
from lab.request import Request
from lab.running import run
from lab.trace import RunTrace, StepTrace
from lab.workload import Workload

STEP_TARGET, THROUGHPUT_TARGET = 0.10, 0.10
MEASURES = ("ttft_s", "tpot_s")


def as_ids(work: Workload, model: Any) -> Workload:
    """The same requests as token ids that run to their full length, so that a simulation has the same work to do."""
    specs = (
        replace(spec, prompt=tuple(spec.tokens(model)), sampling=replace(spec.sampling, ignore_eos=True))
        for spec in work.specs
    )
    return replace(work, specs=tuple(specs))


# -- replay -------------------------------------------------------------------------------------------------
def plan_of(step: StepTrace) -> StepPlan:
    """The plan that a recorded step carried out, without block copies: traces do not keep those."""
    rows = [
        Row(Request(row.request, None, num_prompt=1), row.start, row.num_tokens, row.sampled, row.padding)
        for row in step.rows
    ]
    return StepPlan(rows, step.attention)


def replay(trace: RunTrace, price: Callable[[StepPlan], float]) -> dict[str, float]:
    """Price every recorded plan: relative errors per step (median, p90), and of all seconds together (signed)."""
    pairs = [(price(plan_of(step)), step.end - step.start) for step in trace]
    if not pairs:
        raise BadPolicy("a replay of a run without steps")
    misses = sorted(abs(priced / real - 1) for priced, real in pairs)
    total = sum(priced for priced, _ in pairs) / sum(real for _, real in pairs) - 1
    return {"steps": len(pairs), "median": median(misses), "p90": percentile(misses, 0.9), "total": total}


# -- runs ---------------------------------------------------------------------------------------------------
def crowd(work: Workload) -> Workload:
    """The same requests, all waiting from the start."""
    return work.at_rate(1e9)


def closed(
    work: Workload, reals: Sequence[Report], simulated: Any, options: dict[str, Any], name: str
) -> dict[str, Any]:
    """Real runs of `crowd(work)`, and the same simulated: one row of the table, with the median over the runs.

    A slow moment of the machine hits one of them; what is wrong with the prices shows in all.
    """
    twin = run(crowd(work), simulated, blocks=reals[0].trace.meta["num_blocks"], **options)
    replays = [replay(real.trace, simulated.price) for real in reals]
    found = {key: median(one[key] for one in replays) for key in ("median", "p90", "total")}
    rates = sorted(real.output_tokens_per_s for real in reals)
    error = twin.output_tokens_per_s / median(rates) - 1
    return {
        "case": name,
        "steps": reals[0].steps,
        **found,
        "steps simulated": twin.steps,
        "tokens/s": median(rates),
        "tokens/s of the runs": rates,
        "tokens/s simulated": twin.output_tokens_per_s,
        "throughput error": error,
        "requests/s": median(real.requests_per_s for real in reals),
        "within": found["median"] <= STEP_TARGET and abs(error) <= THROUGHPUT_TARGET,
    }


def opened(
    work: Workload, model: Any, simulated: Any, options: dict[str, Any], name: str, runs: int = 3
) -> list[dict[str, Any]]:
    """Requests arrive at `work.rate`: a row per measure, with the mean of each real run and the simulated one."""
    reals = [run(work, model, **options) for _ in range(runs)]
    twin = run(work, simulated, blocks=reals[0].trace.meta["num_blocks"], **options)
    bias = [replay(real.trace, simulated.price)["total"] for real in reals]
    return [_compared(name, measure, reals, twin, bias) for measure in MEASURES]


def _compared(name: str, measure: str, reals: Sequence[Report], twin: Report, bias: Sequence[float]) -> dict[str, Any]:
    values = sorted(getattr(real, measure).mean for real in reals)
    told = getattr(twin, measure).mean
    nearest = min(max(told, values[0]), values[-1])
    row = {
        "case": name,
        "measure": f"mean {measure.removesuffix('_s').upper()}",
        "real": values,
        "simulated": told,
        "outside by": told / nearest - 1,
        "within": values[0] <= told <= values[-1],
    }
    return row | {"reason": None if row["within"] else _reason(row["outside by"], values, bias)}


def _reason(outside: float, values: Sequence[float], bias: Sequence[float]) -> str:
    """Why a simulated mean lies outside: the price of the steps, or what was done in them."""
    low, high = 100 * min(bias), 100 * max(bias)
    spread = 100 * (values[-1] / values[0] - 1)
    prices = f"priced one by one, the steps of the real runs come out {low:+.1f} to {high:+.1f} % off in sum"
    if outside * (low + high) > 0 and abs(low + high) / 2 >= 25 * abs(outside):  # waiting multiplies what steps add
        return f"{prices}: that points to the price list (the real runs are {spread:.1f} % apart)"
    return f"{prices}, so other plans were made, or the real runs, {spread:.1f} % apart, differ too little to decide"
