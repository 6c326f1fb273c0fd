"""Sweeps: the same table however many processes compute it, and no point is lost."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import lab
from lab.errors import BadPolicy
from lab.running import run
from lab.simulation import processes
from lab.simulation.priced import Priced
from lab.simulation.sweep import product, record, sweep, table

WORK = lab.chat_workload(requests=12, rate=8.0, seed=1)
GRID = {"batching": ["static:4", "continuous:4"], "rate": [2.0, 8.0]}


def test_a_row_per_combination_in_the_order_of_the_product_with_the_numbers_of_a_run() -> None:
    rows = sweep(WORK, Priced(), GRID, processes=1, chunking="whole", slo={"ttft": 1.0})
    places = [(row["batching"], row["rate"]) for row in rows]
    assert places == [("static:4", 2.0), ("static:4", 8.0), ("continuous:4", 2.0), ("continuous:4", 8.0)]
    options = dict(batching="continuous:4", chunking="whole", slo={"ttft": 1.0})
    alone = run(WORK.at_rate(2.0), Priced(), **options)
    assert rows[2]["ttft_p95_s"] == alone.ttft_s.p95 and rows[2]["goodput_rps"] == alone.goodput_rps
    assert rows[2]["error"] is None and rows[2]["refused"] == 0
    assert set(record(alone)) == set(rows[0]) - {"batching", "rate", "error"}
    assert all(value is None or isinstance(value, str | int | float) for value in rows[0].values())


def test_other_processes_compute_the_same_table() -> None:
    assert sweep(WORK, Priced(), GRID, processes=2) == sweep(WORK, Priced(), GRID, processes=1)


def test_an_error_stays_in_its_row(capfd: pytest.CaptureFixture) -> None:
    grid = {"batching": ["static:4", "stattic:4"]}
    for number in (1, 2):
        good, bad = sweep(WORK, Priced(), grid, processes=number)
        assert good["error"] is None and good["finished"] == 12
        assert "stattic" in bad["error"] and bad["finished"] is None and set(bad) == set(good)
    text = table([good, bad], ["batching", "finished"])
    assert text.splitlines()[0].split() == ["batching", "finished", "error"] and "is not known" in text
    assert "Traceback" not in capfd.readouterr().err


def test_a_sweep_without_a_single_good_point_says_why() -> None:
    with pytest.raises(BadPolicy, match="none of the 2 points .* option 'bacthing' is not known"):
        sweep(WORK, Priced(), {"bacthing": ["static:4", "static:8"]}, processes=1)


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({}, "a sweep over nothing"),
        ({"batching": []}, "no values of batching"),
        ({"batching": "static:8"}, "must be a list"),
        ({"blocks": 8}, "must be a list"),
    ],
)
def test_a_grid_that_is_none(grid: dict, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        product(grid)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": "x"}, "number of processes of 'x'; it must be a whole number"),
        ({"processes": -1}, "number of processes of -1; it must be at least 1"),
        ({"processes": 0}, "number of processes of 0; it must be at least 1"),
        ({"load": 2.0}, "a sweep with rate and load"),
        ({"rate": 2.0}, "a sweep over rate, and rate=2.0 for all points"),
        ({"find": "capacity", "slo": {"ttft": 1.0}}, "finds capacities, with rate: the rate is what is searched"),
    ],
)
def test_options_that_make_no_sweep(options: dict, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        sweep(WORK, Priced(), GRID, **options)


def test_rows_are_json_whatever_the_grid_holds() -> None:
    grid = {"rate": [2.0, math.nan, math.inf], "slo": [{"ttft": math.nan}, {"ttft": "soon"}, {"ttft": 1.0}]}
    rows = sweep(WORK, Priced(), grid, processes=1)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert [row["rate"] for row in rows[::3]] == [2.0, "nan", "inf"] and rows[0]["slo"] == "ttft=nan"
    assert [row["error"] is None for row in rows] == [False, False, True] + [False] * 6
    assert "rate is nan" in rows[5]["error"]


def test_a_point_at_which_nothing_is_served_says_why() -> None:
    for number in (1, 2):
        none, all_of_them = sweep(WORK, Priced(), {"blocks": [1, 1000]}, processes=number)
        assert none["finished"] == 0 and none["refused"] == 12
        assert "none of the 12 requests was served: request 0 needs" in none["error"] and all_of_them["error"] is None


def test_models_and_policies_go_by_their_names() -> None:
    slow, policy = Priced(step=0.1), lab.Static(4)
    rows = sweep(WORK, Priced(), {"model": [Priced(), slow], "batching": [policy, "continuous:4"]}, processes=1)
    assert [(row["model"], row["batching"]) for row in rows[:2]] == [("priced", "static:4"), ("priced", "continuous:4")]
    assert rows[2]["ttft_p50_s"] > rows[0]["ttft_p50_s"]


def test_capacity_can_be_swept() -> None:
    work = lab.chat_workload(requests=60, rate=4.0, seed=0)
    grid = {"batching": ["continuous:2", "continuous:16"]}
    two, many = sweep(work, Priced(), grid, find="capacity", processes=1, slo={"ttft": 1.0}, precision=0.2)
    assert 0 < two["capacity_rps"] < many["capacity_rps"] and two["share"] >= 0.9
    with pytest.raises(BadPolicy, match="finds 'rates'"):
        sweep(work, Priced(), grid, find="rates")


class Noisy:
    """A price list of this file, which another process can import only by this file's name."""

    name, eos_token_ids, max_context = "noisy", frozenset(), None
    encode_chat = Priced().encode_chat

    def price(self, plan: object) -> float:
        print("a policy that prints must not disturb")
        return 0.01

    def runner(self, *args: object, **options: object) -> object:
        from lab.simulation.priced import PricedRunner

        return PricedRunner(self.price)


def test_what_a_model_prints_does_not_come_between_the_answers(capfd: pytest.CaptureFixture) -> None:
    rows = sweep(WORK, Noisy(), {"rate": [1.0, 2.0]}, processes=2)
    assert [row["finished"] for row in rows] == [12, 12]


def test_a_worker_that_dies_costs_its_point_only() -> None:
    tasks = [1, 0, 3]
    found = dict(processes.outcomes(_end_on_zero, None, tasks, 2))
    assert found[0].value == 2 and found[2].value == 6
    assert found[1].value is None and "ended early" in found[1].error and "exit status 7" in found[1].error


def _end_on_zero(shared: None, task: int) -> int:
    if not task:
        import os

        os._exit(7)
    return 2 * task


def test_what_no_other_process_could_import_is_computed_here() -> None:
    assert processes._payload(_end_on_zero, lambda: None, [1]) is None
    found = dict(processes.outcomes(lambda shared, task: task + shared, 1, [1, 2], 2))
    assert [found[index].value for index in (0, 1)] == [2, 3]


def test_a_plain_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import lab\n"
        "print('once')\n"
        "work = lab.chat_workload(requests=4, seed=0)\n"
        "rows = lab.sweep(work, lab.Priced(), {'rate': [1.0, 2.0]}, processes=2)\n"
        "print([row['finished'] for row in rows])\n"
    )
    root = str(Path(lab.__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={"PYTHONPATH": root}, cwd=tmp_path
    )
    assert done.stdout == "once\n[4, 4]\n" and not done.stderr


def test_progress_is_silent_where_nobody_looks(capfd: pytest.CaptureFixture) -> None:
    sweep(WORK, Priced(), {"rate": [1.0, 2.0]}, processes=1)
    assert capfd.readouterr() == ("", "")
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    sweep(WORK, Priced(), {"rate": [1.0, 2.0]}, processes=1, progress=True)
    captured = capfd.readouterr()
    assert "2/2" in captured.err and captured.out == ""
