"""Calibration: a known price list is found again from its own times, and a real (tiny) model can be measured."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lab.errors import BadPolicy
from lab.peaks import Peaks
from lab.simulation import calibrate as calibration
from lab.simulation import machine_fit
from lab.simulation.costs import Costs
from lab.simulation.hardware import Device, Fit, device
from lab.simulation.measuring import Bench, Point, measure, points
from lab.simulation.model import SimulatedModel, simulated
from lab.simulation.shapes import model_shape

SHAPE = model_shape("smollm2-135m")
PLAIN = Device("this-machine", "a test", 1e11, 2e10, 16e9, dtypes=("fp32",))
#: A machine whose matrix product is twice as slow as its roofline at 8 tokens, as skinny products often are.
TRUE = replace(
    PLAIN,
    fit=Fit(
        mfu=0.8,
        mbu=0.6,
        overhead=0.0,
        step_overhead=0.0,
        attention_mfu=0.3,
        attention_mbu=0.1,
        row_overhead=0.5e-3,
        correction=((1.0, 1.0), (8.0, 2.0), (32.0, 1.4), (256.0, 1.0)),
    ),
)


def timed(noise: float = 0.0, rounds: int = 3) -> list[Point]:
    """All points with the times of TRUE, each round off by a factor drawn from 1 ± noise."""
    costs, draw = Costs(SHAPE, TRUE, dtype="fp32"), random.Random(0)
    found = points(2048)
    for point in found:
        seconds = costs.seconds(machine_fit.work_of(point.plan()))
        point.seconds = [seconds * (1 + noise * draw.uniform(-1, 1)) for _ in range(rounds)]
    return found


def test_a_known_machine_is_found_again() -> None:
    found = machine_fit.samples(timed())
    fitted = machine_fit.fit_device(found, SHAPE, PLAIN)
    assert machine_fit.errors(found, SHAPE, fitted)["all"]["max"] < 0.02
    true, ours = Costs(SHAPE, TRUE, dtype="fp32"), Costs(SHAPE, fitted, dtype="fp32")
    unseen = [
        Point("decode", ((700, 1),) * 6),
        Point("prefill", ((300, 200),)),
        Point("mixed", ((900, 1),) * 12 + ((100, 80),)),
        Point("padded", ((100, 1),) * 16),
    ]
    for point in unseen:  # between the measured sizes
        work = machine_fit.work_of(point.plan())
        assert ours.seconds(work) == pytest.approx(true.seconds(work), rel=0.05), point.name


def test_a_padded_kernel_of_its_own_is_found_again() -> None:
    """Rectangles of TRUE take other shares and a constant: the fit finds them, and nothing else moves."""
    padded = replace(TRUE, fit=replace(TRUE.fit, rectangle=(0.05, 0.02, 3e-4)))
    costs, found = Costs(SHAPE, padded, dtype="fp32"), timed()
    for point in found:
        point.seconds = [costs.seconds(machine_fit.work_of(point.plan()))]
    fitted = machine_fit.fit_device(machine_fit.samples(found), SHAPE, PLAIN)
    plain = machine_fit.fit_device(machine_fit.samples(timed()), SHAPE, PLAIN)
    assert replace(fitted.fit, rectangle=()) == replace(plain.fit, rectangle=())
    assert fitted.fit.rectangle == pytest.approx(padded.fit.rectangle, rel=0.05)
    ours = Costs(SHAPE, fitted, dtype="fp32")
    for rows in (((100, 1),) * 12, ((0, 40), (0, 90), (0, 70)), ((700, 1), (30, 1))):  # between the measured sizes
        work = machine_fit.work_of(Point("padded", rows).plan())
        assert ours.seconds(work) == pytest.approx(costs.seconds(work), rel=0.05), rows


def test_noise_moves_the_fit_little_and_is_seen_in_the_spread() -> None:
    noisy = timed(noise=0.1, rounds=7)
    fitted = machine_fit.fit_device(machine_fit.samples(noisy), SHAPE, PLAIN)
    assert machine_fit.errors(machine_fit.samples(timed()), SHAPE, fitted)["all"]["median"] < 0.04
    spreads = [point.spread for point in noisy]
    assert all(0 < spread < 0.2 for spread in spreads) and all(point.spread == 0 for point in timed())


def test_too_few_sizes() -> None:
    some = [Point("decode", ((32, 1),) * batch, [0.1]) for batch in (1, 2)]
    with pytest.raises(BadPolicy, match="steps of 2 different sizes"):
        machine_fit.fit_device(machine_fit.samples(some), SHAPE, PLAIN)


def test_points_are_steps_of_every_kind_within_the_context() -> None:
    found = points(2048)
    assert {point.kind for point in found} == {"decode", "prefill", "mixed", "padded"}
    assert {point.tokens for point in found} >= {1, 2, 4, 8, 16, 32, 64, 128, 256}
    assert all(sum(row) < 100 for point in points(100) for row in point.rows)
    rectangle = next(point for point in found if point.kind == "padded" and point.width > 1)
    plan = rectangle.plan()
    assert plan.num_tokens + plan.num_padding == len(plan.rows) * rectangle.width == rectangle.tokens
    assert Point("decode", ((32, 1),) * 3).name == "decode 3 × 1 after 32"


def result(found: list[Point], busy: float | None = 0.0) -> calibration.Calibration:
    samples = machine_fit.samples(found)
    fitted = machine_fit.fit_device(samples, SHAPE, PLAIN)
    return calibration.Calibration(fitted, SHAPE, found, machine_fit.errors(samples, SHAPE, fitted), 1.0, busy)


def test_a_busy_machine_is_noticed() -> None:
    assert result(timed(noise=0.02)).doubt is None and result(timed(noise=0.02), None).doubt is None
    assert "varied by" in result(timed(noise=0.5, rounds=5)).doubt
    assert "80 % of all cores busy" in result(timed(noise=0.02), 0.8).doubt
    assert "not to be trusted" in result(timed(noise=0.02), 0.8).summary()


def test_the_report_has_every_step() -> None:
    found = result(timed(noise=0.02))
    assert len(found.summary().splitlines()) == len(found.points) + 2
    record = json.loads(json.dumps(found.to_dict()))
    assert len(record["steps"]) == len(found.points) and record["errors"]["all"]["steps"] == len(found.points)
    assert Device.from_dict(record["device"]) == found.device


# -- with tensors -------------------------------------------------------------------------------------------
@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The tiny model, a place of its own for the calibration, and known peaks."""
    pytest.importorskip("torch", reason="torch is not installed")
    from lab.execution.model import load_model

    monkeypatch.setenv("LAB_CALIBRATION", str(tmp_path / "this_machine.json"))
    monkeypatch.setattr(calibration.peaks, "this_machine", lambda: Peaks(1e11, 2e10, "a test"))
    return load_model("tiny")


FEW = [
    Point("decode", ((16, 1),)),
    Point("decode", ((16, 1),) * 4),
    Point("prefill", ((0, 32),)),
    Point("mixed", ((16, 1), (0, 20))),
    Point("padded", ((0, 4), (0, 9))),
]


def test_a_real_model_is_measured_fitted_and_found_under_its_name(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadPolicy, match="python3 -m lab calibrate"):
        device("this-machine")
    monkeypatch.setattr("lab.simulation.measuring.points", lambda limit: [replace(point, seconds=[]) for point in FEW])
    heard: list[str] = []
    found = calibration.calibrate(tiny, seconds=0.2, say=heard.append)
    assert all(len(point.seconds) >= 2 and min(point.seconds) > 0 for point in found.points)
    assert heard[0].startswith("round 1: 5 steps")
    assert found.path.exists() and device("this-machine") == found.device
    assert found.device.memory > 1e8 and found.device.notes.startswith("fit over 5 steps")
    own = SimulatedModel(calibration.shape_of(tiny), found.device)
    assert own.max_context == tiny.max_context and own.price(FEW[0].plan()) > 0
    assert simulated("smollm2-135m", on="this-machine").name == "smollm2-135m on this-machine (simulated)"


def test_nothing_is_kept_unless_wanted(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.simulation.measuring.points", lambda limit: [replace(point, seconds=[]) for point in FEW])
    assert calibration.calibrate(tiny, seconds=0.1, save=False).path is None
    with pytest.raises(BadPolicy, match="not been measured"):
        device("this-machine")


def test_the_shape_of_a_real_model_counts_its_weights(tiny) -> None:
    shape = calibration.shape_of(tiny)
    assert shape.parameters == tiny.num_parameters
    assert shape.kv_numbers_per_token * 4 == tiny.kv_bytes_per_token


def test_every_block_is_written_before_it_is_timed(tiny) -> None:
    bench = Bench(tiny, FEW)
    copied: list[int] = []
    original = type(bench.runner).run

    class Watching:
        def run(self, plan):
            copied.extend(copy.target for copy in plan.copies)
            return original(bench.runner, plan)

    model = type("Model", (), {"runner": lambda self, blocks, size: Watching()})()
    Bench(model, FEW)
    needs = max(sum(-(-sum(row) // 16) for row in point.rows) for point in FEW)
    assert copied == list(range(1, needs))


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_time_that_is_none(tiny, seconds: float) -> None:
    with pytest.raises(BadPolicy, match="a calibration"):
        measure(tiny, seconds)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_time_that_is_none_is_said_before_anything_is_loaded(
    seconds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from lab import cli

    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr("lab.execution.model.load_model", lambda *a: pytest.fail("loaded a model"))
    assert cli.main(["calibrate", "--seconds", seconds]) == 2
    assert "calibrate: a calibration" in capsys.readouterr().err
    with pytest.raises(BadPolicy, match="a calibration"):
        calibration.calibrate(seconds=float(seconds))


@pytest.mark.parametrize("model", ["x", 3])
def test_a_model_that_cannot_be_run(model: object) -> None:
    with pytest.raises(BadPolicy, match=f"a calibration of {model!r}: give a model that can be run"):
        calibration.calibrate(model)
    with pytest.raises(BadPolicy, match="give a model that can be run"):
        calibration.calibrate(simulated())


def test_a_model_elsewhere_is_not_this_machine(tiny) -> None:
    tiny.dtype = type("Half", (), {"itemsize": 2, "__str__": lambda self: "half"})()
    with pytest.raises(BadPolicy, match="tiny is on cpu in half: this machine is its CPU, in float32"):
        calibration.calibrate(tiny)


def test_the_command(tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from lab import cli

    monkeypatch.setattr("lab.simulation.measuring.points", lambda limit: [replace(point, seconds=[]) for point in FEW])
    monkeypatch.setattr(calibration, "_busy", lambda: 0.0)
    path = tmp_path / "out.json"
    code = cli.main(["calibrate", "--model", "tiny", "--seconds", "0.1", "--json", str(path)])
    record, out = json.loads(path.read_text()), capsys.readouterr().out
    assert code == (1 if record["doubt"] else 0) and ("not to be trusted" in out) == bool(record["doubt"])
    assert "--on this-machine" in out and record["model"] == "tiny"
    assert cli.main(["calibrate", "--model", "tiny", "--seconds", "-1"]) == 2
    assert "calibrate: a calibration (s) of -1" in capsys.readouterr().err
