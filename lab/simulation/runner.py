"""Carries plans out by pricing them. Stretches are advanced in one go; nothing is computed, so there are no tokens."""

from __future__ import annotations

from lab.plan import StepPlan, StepResult
from lab.simulation.costs import Costs
from lab.simulation.lanes import Demand
from lab.simulation.stretch import ends_of
from lab.simulation.work import work_of


class SimulatedRunner:
    """Prices plans (implements lab.plan.Runner) on the virtual clock; `stretches` says that plans may repeat."""

    stretches = True

    def __init__(self, costs: Costs):
        self.costs = costs

    def run(self, plan: StepPlan) -> StepResult:
        """Modelled seconds, FLOPs and bytes of the plan; of all its steps, with `ends`, where it repeats."""
        costs, work = self.costs, work_of(plan)
        nothing: list[None] = [None] * len(plan.rows)
        if plan.repeat == 1:
            return StepResult(nothing, nothing, costs.seconds(work), True, costs.flops(work), costs.bytes(work))
        ends = ends_of(costs, work, plan.repeat, plan.until)
        steps = len(ends)
        return StepResult(nothing, nothing, ends[-1], True, costs.flops(work, steps), costs.bytes(work, steps), ends)

    def demand(self, plan: StepPlan) -> Demand:
        """What one step of `plan` wants of the device while others are in flight; for lanes.SharedDevice."""
        return self.costs.demand(work_of(plan))
