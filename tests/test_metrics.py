"""Every metric against numbers worked out by hand on a small run."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
from harness import preemptions, request, run_all

import lab
from lab.errors import BadPolicy
from lab.metrics import Distribution, Report, RequestTimes, percentile, summary_table
from lab.simulation.priced import Priced
from lab.trace import Event, RequestInfo, RowTrace, RunTrace, StepTrace

A, B, C, D, E = range(5)
#: request: (arrival, prompt, finish reason). C is aborted in step 3, D is refused, E has one output token.
STORY = {
    A: (0.0, 4, "length"),
    B: (1.0, 6, "stop"),
    C: (2.0, 3, "abort"),
    D: (2.5, 99, "refused"),
    E: (5.0, 2, "length"),
}
#: (start, end), rows of (request, start, tokens, padding, token), events, free blocks after, slots, resident
STEPS = [
    ((0.0, 1.0), [(A, 0, 4, 0, 10)], [(0.0, "arrived", A, 0), (0.0, "admitted", A, 0)], 9, 4, 4),
    ((2.0, 4.0), [(A, 4, 1, 5, 11), (B, 0, 6, 0, 20)], [(2.0, "admitted", B, 2)], 6, 16, 12),
    ((4.0, 4.5), [(A, 5, 1, 0, 12), (B, 6, 1, 0, 21), (C, 0, 1, 0, None)], [(4.0, "admitted", C, 0)], 5, 20, 18),
    ((6.0, 7.0), [(B, 7, 1, 0, 22), (E, 0, 2, 0, 30), (A, 6, 0, 2, None)], [(6.0, "preempted", C, 1)], 8, 8, 8),
]


def story(delivered: dict[int, float] | None = None) -> RunTrace:
    trace = RunTrace(meta={"clock": "virtual", "num_blocks": 10, "block_size": 4, "axes": {"batching": "made up"}})
    for id, (arrival, prompt, reason) in STORY.items():
        trace.requests[id] = RequestInfo(id, arrival, prompt, 9, finish_reason=reason)
    for index, (span, rows, events, free, slots, resident) in enumerate(STEPS):
        trace.append(
            StepTrace(
                index,
                *span,
                "packed",
                [RowTrace(id, at, n, pad, token is not None, token, 0.5) for id, at, n, pad, token in rows],
                [Event(*event) for event in events],
                waiting=0,
                running=0,
                free=free,
                used=10 - free,
                cached=0,
                recomputed=3 if index == 3 else 0,
                slots=slots,
                resident=resident,
            )
        )
    trace.late_events = [
        Event(time, "delivered", id, sum(row.request == id and row.sampled for step in trace for row in step.rows))
        for id, time in (delivered or {}).items()
    ]
    return trace


def test_latencies_by_hand() -> None:
    report = Report.from_trace(story())
    # A: tokens at 1, 4, 4.5 (arrival 0); B: 4, 4.5, 7 (arrival 1); E: 7 (arrival 5)
    assert [report.times[id].tokens for id in (A, B, E)] == [[1.0, 4.0, 4.5], [4.0, 4.5, 7.0], [7.0]]
    assert sorted(report.times[id].ttft for id in (A, B, E)) == [1.0, 2.0, 3.0]
    assert report.ttft_s.mean == 2.0 and report.ttft_s.p50 == 2.0
    assert [report.times[id].tpot for id in (A, B, E)] == [1.75, 1.5, None]
    assert report.tpot_s.mean == 1.625  # E has no TPOT
    assert report.itl_s.mean == pytest.approx((3.0 + 0.5 + 0.5 + 2.5) / 4)  # pooled, not a mean of means
    assert report.itl_s.p50 == pytest.approx(1.5)
    assert [report.times[id].e2e for id in (A, B, E)] == [4.5, 6.0, 2.0]
    assert report.queueing_s.mean == pytest.approx((0.0 + 1.0 + 1.0) / 3)


def test_ttft_is_queueing_plus_compute() -> None:
    times = Report.from_trace(story()).times[B]
    assert times.ttft == (times.admitted - times.arrival) + (times.tokens[0] - times.admitted)


def test_rates_by_hand() -> None:
    report = Report.from_trace(story())
    assert report.duration_s == 7.0  # first arrival to the last step's end
    assert report.output_tokens == 7  # every computed token is work
    assert report.output_tokens_per_s == 1.0
    assert report.total_tokens_per_s == pytest.approx((4 + 6 + 2 + 3 + 3 + 1) / 7)  # of finished requests
    assert (report.requests, report.finished) == (5, 3) and report.requests_per_s == pytest.approx(3 / 7)
    assert report.utilisation == pytest.approx((1 + 2 + 0.5 + 1) / 7)


def test_duration_starts_with_the_first_arrival() -> None:
    trace = story()
    for info in trace.requests.values():
        info.arrival_time += 0.5
    assert Report.from_trace(trace).duration_s == 6.5


def test_work_by_hand() -> None:
    report = Report.from_trace(story())
    assert report.steps == 4
    assert report.computed_tokens == 4 + 7 + 3 + 3
    assert report.padded_tokens == 5 + 2
    assert report.wasted_slots == 1
    assert report.recomputed_tokens == 3
    assert report.cached_tokens == 2 and report.dropped_tokens == 1 and report.preemptions == 1
    assert report.mean_batch == (1 + 2 + 3 + 2) / 4  # the carried row is nobody's
    assert report.kv_waste == pytest.approx((0 + 4 / 16 + 2 / 20 + 0) / 4)
    assert report.peak_blocks == 5


def test_goodput_counts_requests_that_meet_every_limit() -> None:
    def goodput(**slo: float) -> float:
        return Report.from_trace(story(), slo).goodput_rps * 7

    assert goodput(ttft=3.0) == pytest.approx(3)  # at the limit is within it
    assert goodput(ttft=2.9) == pytest.approx(2)
    assert goodput(tpot=1.6) == pytest.approx(2)  # B, and E: a single token counts as TPOT 0
    assert goodput(itl=0.4) == pytest.approx(1)  # E alone: no gap at all
    assert goodput(itl=2.5) == pytest.approx(2)  # the longest gap decides, not the mean
    assert goodput(e2e=4.5) == pytest.approx(2)
    assert goodput(ttft=2.0, tpot=1.6) == pytest.approx(1)  # E meets both, A fails one, B the other
    assert Report.from_trace(story()).goodput_rps is None
    with pytest.raises(BadPolicy, match="SLO on speed; there are ttft, tpot, e2e, itl"):
        Report.from_trace(story(), {"speed": 1.0})


def test_delivery_by_batch_moves_ttft_and_e2e_but_not_tpot() -> None:
    report = Report.from_trace(story({A: 7.0, B: 7.0}))
    assert [report.times[id].ttft for id in (A, B, E)] == [7.0, 6.0, 2.0]
    assert [report.times[id].e2e for id in (A, B)] == [7.0, 6.0]
    assert report.times[A].tpot == 1.75


def test_a_static_batch_delivers_at_its_end_and_ttft_says_so() -> None:
    requests = [request(0, 3, 1), request(1, 4, 5)]
    report = Report.from_trace(run_all(requests, batching="static:2").flush())
    end = report.trace[-1].end
    assert [times.ttft for times in report.times.values()] == [end, end]
    at_once = Report.from_trace(
        run_all([request(0, 3, 1), request(1, 4, 5)], batching="static:2", delivery="token").flush()
    )
    assert [times.ttft for times in at_once.times.values()] == [at_once.trace[0].end] * 2


def test_a_static_batch_by_hand() -> None:
    # prompts 3, 5, 4; outputs 2, 4, 1 (see tests/batching/test_static.py)
    requests = [request(0, 3, 2), request(1, 5, 4), request(2, 4, 1)]
    report = Report.from_trace(run_all(requests, batching="static:3").flush())
    assert (report.steps, report.computed_tokens, report.padded_tokens, report.wasted_slots) == (4, 16, 8, 5)
    assert report.output_tokens == 7 and report.mean_batch == (3 + 2 + 1 + 1) / 4


def test_kv_waste_of_one_request_by_hand() -> None:
    # blocks of 4 slots: 5 tokens in 8 slots, 6 in 8, 7 in 8, 8 in 8
    report = Report.from_trace(run_all([request(0, 5, 4)]).flush())
    assert report.kv_waste == pytest.approx((3 / 8 + 2 / 8 + 1 / 8 + 0) / 4)


@pytest.mark.parametrize(("length", "outputs", "blocks"), [(5, 1, 2), (4, 2, 2), (16, 1, 4)])
def test_peak_blocks_counts_the_last_step_too(length: int, outputs: int, blocks: int) -> None:
    trace = run_all([request(0, length, outputs)]).flush()
    assert Report.from_trace(trace).peak_blocks == blocks


def test_recomputed_and_dropped_tokens_of_a_preempting_run() -> None:
    requests = [request(0, 6, 12), request(1, 6, 12)]
    engine = run_all(requests, blocks=5)
    report = Report.from_trace(engine.flush())
    assert report.preemptions == preemptions(engine) > 0
    assert (
        report.computed_tokens + report.cached_tokens == sum(r.num_tokens - 1 for r in requests) + report.dropped_tokens
    )
    assert report.recomputed_tokens == report.dropped_tokens > 0


def test_percentiles_are_numpys() -> None:
    draw = random.Random(5)
    for size in (1, 2, 3, 10, 101, 1000):
        values = [draw.expovariate(1.0) for _ in range(size)]
        for q in (0.0, 0.01, 0.5, 0.95, 0.99, 1.0):
            assert percentile(sorted(values), q) == pytest.approx(np.quantile(values, q), rel=1e-12)
        spread = Distribution.of(values)
        expected = [np.mean(values), *np.percentile(values, [50, 95, 99])]
        assert [spread.mean, spread.p50, spread.p95, spread.p99] == pytest.approx(expected)


def test_no_values_have_no_distribution() -> None:
    assert Distribution.of([]) == Distribution(None, None, None, None)


def test_a_single_token_has_no_tpot_and_meets_any() -> None:
    times = RequestTimes(0, 0.0, tokens=[2.0], finish_reason="stop")
    assert times.tpot is None and times.gaps == [] and times.meets({"tpot": 0.0, "itl": 0.0, "ttft": 2.0})
    assert not times.meets({"ttft": 1.9})


def test_a_run_without_steps() -> None:
    report = Report.from_trace(run_all([request(0, 99, 1)], blocks=2).flush(), {"ttft": 1.0})
    assert (report.requests, report.finished, report.steps, report.duration_s) == (1, 0, 0, 0.0)
    assert report.kv_waste is None and report.tokens_sha256 is None and report.ttft_s.p50 is None
    report.summary()
    empty = Report.from_trace(RunTrace())
    assert (empty.requests, empty.output_tokens_per_s) == (0, 0.0)


def test_steps_that_cost_nothing() -> None:
    import lab

    work = lab.workload.fixed_workload([4, 5], [2, 2])
    assert lab.run(work, Priced(step=0.0, token=0.0)).finished == 2


def test_the_digest_is_of_every_requests_tokens_in_request_order() -> None:
    report = Report.from_trace(story())
    expected = [[A, [10, 11, 12]], [B, [20, 21, 22]], [C, []], [D, []], [E, [30]]]
    assert report.tokens_sha256 == hashlib.sha256(json.dumps(expected).encode()).hexdigest()
    changed = story()
    changed._rows[6] = 99  # the first token
    assert Report.from_trace(changed).tokens_sha256 != report.tokens_sha256


KEYS = (
    "output_tokens_per_s total_tokens_per_s requests_per_s ttft_s tpot_s itl_s e2e_s goodput_rps computed_tokens "
    "padded_tokens recomputed_tokens cached_tokens wasted_slots peak_blocks kv_waste preemptions steps mfu mbu "
    "utilisation clock tokens_sha256"
).split()


def test_report_as_json(tmp_path: Path) -> None:
    report = Report.from_trace(story(), {"ttft": 2.0})
    report.to_json(tmp_path / "report.json")
    record = json.loads((tmp_path / "report.json").read_text())
    assert set(KEYS) <= set(record) and "trace" not in record and "times" not in record
    assert set(record["ttft_s"]) == {"mean", "p50", "p95", "p99"}
    assert record["clock"] == "virtual" and record["slo"] == {"ttft": 2.0}


def test_summary_names_the_clock_and_every_run() -> None:
    report = Report.from_trace(story())
    text = summary_table({"one": report, "other": report}, {"same tokens": {"one": "yes"}})
    lines = [line for line in text.splitlines() if not line.startswith("refused")]
    assert lines[0].split() == ["one", "other"] and "times: measured (virtual clock)" in lines[-1]
    assert any(line.startswith("tokens padded") and line.split()[-2:] == ["7", "7"] for line in lines)
    assert len({len(line) for line in lines[:-2]}) == 1  # columns line up


def test_weighted_percentiles_are_those_of_the_repeated_values() -> None:
    draw = random.Random(4)
    counts = {draw.uniform(0, 9): draw.randint(1, 7) for _ in range(40)}
    plain = Distribution.of([value for value, count in counts.items() for _ in range(count)])
    weighted = Distribution.weighted(counts)
    for name in ("mean", "p50", "p95", "p99"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), rel=1e-12)
    assert Distribution.weighted({}) == Distribution()


def test_mfu_and_mbu_are_shares_of_the_peaks_while_steps_ran() -> None:
    trace = RunTrace(meta={"peak_flops": 100.0, "peak_bytes_per_s": 50.0, "peak_source": "made up"})
    trace.requests[0] = RequestInfo(0, 0.0, 4, 2, finish_reason="length")
    rows = [RowTrace(0, 0, 4, 0, True, None)]
    trace.append(StepTrace(0, 1.0, 3.0, "packed", rows, [], 0, 1, 9, 1, 0, flops=60.0, bytes=20.0))
    trace.append(StepTrace(1, 5.0, 7.0, "packed", rows, [], 0, 1, 9, 1, 0, flops=20.0, bytes=20.0))
    report = Report.from_trace(trace)
    assert report.mfu == pytest.approx(80 / (4 * 100))  # two steps of two seconds each
    assert report.mbu == pytest.approx(40 / (4 * 50))
    assert report.utilisation == pytest.approx(4 / 7)
    assert report.peak_source == "made up"
    assert "MFU" in summary_table({"a": report}) and "20.0 %" in summary_table({"a": report})
    trace.meta.clear()
    unknown = Report.from_trace(trace)
    assert unknown.mfu is None and unknown.mbu is None
    assert "MFU" not in summary_table({"a": unknown})


def test_every_figure_of_one_run_by_name() -> None:
    from lab.live.figures import OF_ONE_RUN

    report = lab.run(lab.fixed_workload([60, 90], [5, 3]), lab.simulated("llama-3-8b", on="h100-sxm"))
    for name in OF_ONE_RUN:
        assert report.figure(name).layout.title.text, name
    with pytest.raises(BadPolicy, match="'pie' is not known; there are timeline"):
        report.figure("pie")
