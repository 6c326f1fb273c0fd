"""Several streams against one batch: what is counted, and what a simulated device must say."""

from __future__ import annotations

import pytest

import lab
from lab.errors import BadPolicy
from lab.experiments.streams import streams, together, weights_per_token
from lab.metrics import Report
from lab.trace import RequestInfo, RowTrace, RunTrace, StepTrace
from lab.workload import fixed_workload


def made_up() -> Report:
    """Two steps that overlap for one of three seconds, and one alone after a pause."""
    trace = RunTrace()
    trace.requests = {id: RequestInfo(id, 0.0, 1, 2, finish_reason="length") for id in (0, 1)}
    for index, (request, start, end) in enumerate([(0, 0.0, 2.0), (1, 1.0, 3.0), (0, 5.0, 6.0)]):
        trace.append(StepTrace(index, start, end, "packed", [RowTrace(request, 0, 1, 0, True)], [], 0, 2, 1, 1, 0))
    return Report.from_trace(trace)


def test_the_share_of_the_time_in_flight_together():
    assert together(made_up()) == pytest.approx(1 / 4)


def test_weights_read_per_token_are_steps_times_weights_over_tokens():
    assert weights_per_token(made_up(), 600.0) == pytest.approx(3 * 600 / 3)


@pytest.fixture(scope="module")
def simulated():
    work = fixed_workload([64] * 16, [100] * 16)
    return streams(work, lab.simulated("llama-3-8b", on="h100-sxm"), batching="continuous:16", chunking="budget:512")


def test_two_lanes_of_decodes_read_the_weights_twice_and_lose(simulated):
    one, two = simulated["one"], simulated["split:2"]
    assert two.output_tokens == one.output_tokens
    per_token = [row["weights MB per token"] for row in simulated.rows()]
    assert per_token[1] == pytest.approx(2 * per_token[0], rel=0.05)
    assert two.output_tokens_per_s < one.output_tokens_per_s
    assert together(one) == 0 and together(two) > 0.9


def test_the_table_says_that_it_is_simulated(simulated):
    text = str(simulated)
    assert text.endswith("times: simulated")
    assert len({len(line) for line in text.splitlines()[:-1]}) == 1
    assert [row["lanes"] for row in simulated.rows()] == ["one", "split:2", "phases"]


@pytest.mark.parametrize("lanes", [(), ("one", "one")])
def test_each_way_once(lanes):
    with pytest.raises(BadPolicy, match="at least one, and each once"):
        streams(fixed_workload([4], [2]), lab.simulated("llama-3-8b", on="h100-sxm"), lanes)
