"""Validation: a simulated run replays exactly under its own prices, and known differences come out as such."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from lab.errors import BadPolicy
from lab.running import run
from lab.simulation import twins
from lab.simulation import validate as validation
from lab.simulation.calibrate import Calibration
from lab.simulation.hardware import device
from lab.simulation.measuring import Point
from lab.simulation.model import SimulatedModel, simulated
from lab.simulation.priced import Priced
from lab.simulation.shapes import model_shape
from lab.simulation.validate import CASES, OPEN_CASES, drift, main, summary, validate
from lab.trace import RunTrace

WORK = lab.few_shot_workload(requests=12, rate=40.0, seed=1)


@pytest.mark.parametrize("name", CASES)
def test_a_run_replays_exactly_under_the_prices_it_was_made_with(name: str, tmp_path: Path) -> None:
    model = simulated("smollm2-135m", on="t4")
    trace = run(WORK, model, **CASES[name][1]).trace
    trace.write(tmp_path / "run.jsonl")
    found = twins.replay(RunTrace.read(tmp_path / "run.jsonl"), model.price)
    assert found["steps"] == len(trace) and found["p90"] < 1e-6 and abs(found["total"]) < 1e-6


def test_a_machine_that_is_half_as_fast_is_half_as_fast() -> None:
    trace = run(WORK, Priced(step=0.02, token=0.001), batching="static:4").trace
    found = twins.replay(trace, Priced(step=0.04, token=0.002).price)
    assert found["median"] == pytest.approx(1.0) and found["total"] == pytest.approx(1.0)
    with pytest.raises(BadPolicy, match="without steps"):
        twins.replay(RunTrace(), Priced().price)


def test_ids_keep_prompts_lengths_and_arrivals() -> None:
    ids = twins.as_ids(WORK, Priced())
    assert [len(spec.prompt) for spec in ids.specs] == [len(spec.tokens(Priced())) for spec in WORK.specs]
    assert all(spec.sampling.ignore_eos and isinstance(spec.prompt[0], int) for spec in ids.specs)
    assert [spec.arrival for spec in ids.specs] == [spec.arrival for spec in WORK.specs] and ids.rate == WORK.rate


def test_closed_load_compares_throughput_and_work() -> None:
    ids, options = twins.as_ids(WORK, Priced()), CASES["few-shot, prefix cache"][1]
    reals = [run(twins.crowd(ids), Priced(step=step), **options) for step in (0.02, 0.01, 0.02, 0.5, 0.02)]
    same = twins.closed(ids, reals, Priced(step=0.02), options, "same")  # a slow and a fast moment change nothing
    assert same["within"] and same["throughput error"] == 0 and same["steps"] == same["steps simulated"]
    slower = twins.closed(ids, reals, Priced(step=0.04, token=0.002), options, "slower")
    assert not slower["within"] and slower["throughput error"] == pytest.approx(-0.5)


def test_open_load_says_whether_and_why_a_mean_lies_outside() -> None:
    ids, options = twins.as_ids(WORK, Priced()).at_rate(5.0), {"batching": "continuous:4", "clock": "virtual"}
    same = twins.opened(ids, Priced(), Priced(), options, "same")
    assert [row["measure"] for row in same] == ["mean TTFT", "mean TPOT"]
    assert all(row["within"] and row["reason"] is None and row["outside by"] == 0 for row in same)
    slower = twins.opened(ids, Priced(), Priced(step=0.04, token=0.002), options, "slower")
    assert all(not row["within"] and row["outside by"] > 0 for row in slower)
    assert "+100.0 to +100.0 % off in sum: that points to the price list" in slower[1]["reason"]


def test_a_mean_outside_although_the_prices_are_right_is_not_blamed_on_them() -> None:
    assert "so other plans were made" in twins._reason(0.2, [1.0, 1.1], [0.01, -0.01])
    assert "so other plans were made" in twins._reason(0.2, [1.0, 1.1], [-0.3, -0.3])  # the other way
    assert "points to the price list" in twins._reason(-0.2, [1.0, 1.1], [-0.2, -0.25])


def test_the_whole_of_it_on_the_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from lab.execution.model import load_model
    from lab.simulation.hardware import save_this_machine

    monkeypatch.setenv("LAB_CALIBRATION", str(tmp_path / "this_machine.json"))
    with pytest.raises(BadPolicy, match="python3 -m lab calibrate"):
        validate(load_model("tiny"), requests=3, cases=["static"])
    save_this_machine(replace(device("t4"), name="this-machine", dtypes=("fp32",)))
    record = validate(load_model("tiny"), requests=2, cases=["static", "chunked"], open_cases=["chunked"], runs=2)
    assert [row["case"] for row in record["closed"]] == ["static", "chunked"]
    assert [row["case"] for row in record["open"]] == ["chunked", "chunked"] and len(record["open"][0]["real"]) == 2
    assert all(row["steps"] == row["steps simulated"] for row in record["closed"])  # the same plans are made
    assert record["of"] == 4 and 0 <= record["within"] <= 4
    text = summary(json.loads(json.dumps(record)))
    assert "within the targets" in text and "chunked" in text


def test_drift_compares_the_same_steps_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice_as_slow(model, found, budget, least):
        for point in found:
            point.seconds = [0.2] * least

    monkeypatch.setattr(validation, "more_rounds", twice_as_slow)
    then = [Point("decode", ((32, 1),) * batch, [0.1, 0.1]) for batch in range(1, 10)]
    kept = Calibration(device("t4"), model_shape("smollm2-135m"), then, {}, 1.0, None)
    assert drift(object(), kept) == pytest.approx(1.0) and then[0].seconds == [0.1, 0.1]


def test_unknown_cases() -> None:
    with pytest.raises(BadPolicy, match="validation of statical; there are static,"):
        validate(object(), cases=["statical"])
    with pytest.raises(BadPolicy, match="validation of nothing"):
        validate(object(), cases=[])
    assert set(OPEN_CASES) <= set(CASES)
    with pytest.raises(SystemExit):
        main(["--case", "statical"])


def test_kept_results_of_this_package_have_what_the_summary_shows() -> None:
    record = validation.stored()
    assert record["of"] == len(record["closed"]) + len(record["open"]) and summary(record)
    assert [row["case"] for row in record["closed"]] == list(CASES)
    for row in record["closed"]:
        assert row["median"] <= twins.STEP_TARGET and abs(row["throughput error"]) <= twins.THROUGHPUT_TARGET, row
    for row in record["open"]:  # inside the spread of the real runs, or with a reason
        assert row["within"] == (row["reason"] is None) and len(row["real"]) == 3, row


def test_a_shape_of_the_table_is_the_default_model() -> None:
    assert SimulatedModel(model_shape("smollm2-135m"), device("t4")).kv_bytes_per_token == 2 * 30 * 192 * 2
