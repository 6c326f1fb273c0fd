"""`python3 -m lab simulate`: what it prints and writes, and one sentence for every mistake."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from lab import cli, traces
from lab.running import run
from lab.simulation.model import simulated
from lab.simulation.progress import Line, Watched
from lab.trace import RunTrace
from lab.workload import DATA

AZURE = DATA / "synthetic" / "azure-conv-like.csv"
SMALL = ["--trace", str(AZURE), "--limit", "20"]


def test_the_numbers_are_those_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = ["--json", str(tmp_path / "report.json"), "--steps", str(tmp_path / "steps.jsonl")]
    slo = ["--slo", "ttft=1,tpot=0.05"]
    axes = ["--batching", "continuous:8", "--chunking", "budget:512", "--model", "llama-2-13b", "--on", "a100-sxm"]
    assert cli.main(["simulate", *SMALL, *axes, *slo, *files]) == 0
    captured = capsys.readouterr()
    assert "20 requests of azure-conv-like" in captured.out and "(simulated)" in captured.out
    assert "times: simulated (virtual clock)" in captured.out and captured.err == ""
    report = json.loads((tmp_path / "report.json").read_text())
    model = simulated("llama-2-13b", on="a100-sxm")
    options = dict(batching="continuous:8", chunking="budget:512", slo={"ttft": 1.0, "tpot": 0.05})
    expected = run(traces.azure(AZURE, limit=20), model, **options)
    assert report == json.loads(json.dumps(expected.to_dict())) and report["measured"] is False
    assert len(RunTrace.read(tmp_path / "steps.jsonl")) == expected.steps


def test_a_trace_can_be_told_faster(tmp_path: Path) -> None:
    durations = []
    for rate in ("1", "10"):
        path = tmp_path / f"{rate}.json"
        assert cli.main(["simulate", *SMALL, "--rate", rate, "--max-tokens", "4", "--json", str(path)]) == 0
        durations.append(json.loads(path.read_text())["duration_s"])
    assert durations[0] == pytest.approx(19, rel=0.05) and durations[1] == pytest.approx(1.9, rel=0.1)


def test_built_in_workloads_parallelism_and_load(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "report.json"
    argv = ["--model", "llama-3-70b", "--tp", "4", "--workload", "few-shot", "--requests", "6", "--load", "0.5"]
    assert cli.main(["simulate", *argv, "--prefix-cache", "radix", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["finished"] == 6 and report["cached_tokens"] > 0
    assert "llama-3-70b on h100-sxm tp4" in capsys.readouterr().out


def test_repeated_axes_are_swept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "rows.json"
    axes = ["--batching", "static:4", "--batching", "continuous:4", "--chunking", "whole"]
    assert cli.main(["simulate", "--requests", "6", *axes, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [row["batching"] for row in rows] == ["static:4", "continuous:4"] and rows[0]["chunking"] == "whole"
    assert rows[0]["padded_tokens"] > 0 == rows[1]["padded_tokens"]
    out = capsys.readouterr().out
    assert "static:4" in out and "times: simulated" in out
    assert cli.main(["simulate", "--requests", "6", "--ordering", "fcfs", "--ordering", "nothing"]) == 1
    assert "ordering 'nothing' is not known" in capsys.readouterr().out


def test_capacity(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "capacity.json"
    argv = ["--requests", "150", "--slo", "ttft=0.1", "--batching", "continuous:16", "--capacity"]
    assert cli.main(["simulate", *argv, "--json", str(path)]) == 0
    record = json.loads(path.read_text())
    assert record["capacity_rps"] < record["fails"] <= 1.05 * record["capacity_rps"]
    assert "capacity:" in capsys.readouterr().out
    assert cli.main(["simulate", *argv, "--attainment", "0.5", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["capacity_rps"] > record["capacity_rps"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--on", "h10"], "device 'h10' is not known; did you mean"),
        (["--model", "llama-3-9b"], "model 'llama-3-9b' is not known; did you mean llama-3-8b"),
        (["--model", "llama-3-70b"], "63.8 GB short with one block of keys and values. tp=2 would do"),
        (["--tp", "3"], "tp=3 cannot share 32 heads"),
        (["--rate", "-2"], "rate is -2.0"),
        (["--rate", "0"], "rate is 0"),
        ([*SMALL, "--rate", "-2"], "rate is -2.0"),
        ([*SMALL, "--load", "-1"], "load is -1.0"),
        ([*SMALL, "--rate", "1", "--load", "1"], "not both"),
        ([*SMALL, "--requests", "3"], "--limit N takes the first"),
        ([*SMALL, "--workload", "chat"], "--trace with --workload"),
        ([*SMALL[:2], "--limit", "0"], "limit is 0; it must be at least 1"),
        ([*SMALL, "--seed", "0"], "--trace with --seed: a trace brings its requests"),
        ([*SMALL, "--seed", "1", "--temperature", "0.5"], "--trace with --seed and --temperature"),
        (["--limit", "3"], "--limit 3 is for a --trace"),
        (["--rate", "1e-308"], "rate is 1e-308: request 1 would come after"),
        (["--attainment", "0.9"], "--attainment 0.9 is for --capacity"),
        (["--capacity", "--slo", "ttft=1", "--rate", "3"], "--capacity with --rate: the rate is what is searched"),
        (["--capacity", "--slo", "ttft=1", "--load", "1"], "--capacity with --load"),
        (["--capacity", "--slo", "ttft=1", "--steps", "steps.jsonl"], "--capacity with --steps"),
        (["--slo", "ttft=1,ttft=2"], "--slo 'ttft=1,ttft=2': ttft is given twice"),
        (["--requests", "0"], "requests of 0;"),
        (["--trace", "no/such.csv"], "no/such.csv cannot be read"),
        (["--batching", "stattic:8"], "batching 'stattic:8' is not known"),
        (["--blocks", "0"], "blocks of 0"),
        (["--capacity"], "--capacity needs --slo"),
        (["--capacity", "--slo", "ttft=0"], "no rate from"),
        (["--capacity", "--slo", "ttft=1", "--attainment", "2"], "attainment of 2.0"),
        (["--slo", "speed=1"], "SLO on speed"),
        (["--json", "no/such/folder.json"], "cannot be written"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_a_mistake_ends_in_one_sentence(argv: list[str], says: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["simulate", *argv]) == 2
    error = capsys.readouterr().err
    assert says in error and error.startswith("simulate: ") and error.count("\n") == 1


@pytest.mark.parametrize("text", ["", "TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_an_empty_trace(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)
    assert cli.main(["simulate", "--trace", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and ("begins no trace" in error or "has no requests" in error)


@pytest.mark.parametrize("pace", ["rate", "load"])
def test_a_pace_for_what_comes_at_once(pace: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "crowd.csv"
    row = "2023-11-16 18:17:03.9799600,374,44\n"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + row * 3)
    assert cli.main(["simulate", "--trace", str(path)]) == 0
    capsys.readouterr()
    assert cli.main(["simulate", "--trace", str(path), f"--{pace}", "3"]) == 2
    assert f"all 3 requests of crowd arrive at once: --{pace} would change nothing" in capsys.readouterr().err


def test_where_nothing_is_served_the_exit_code_is_one_and_the_reason_given(capsys: pytest.CaptureFixture) -> None:
    argv = ["simulate", "--requests", "3", "--blocks", "1"]
    for axes in ([], ["--batching", "static:4", "--batching", "continuous:4"]):
        assert cli.main([*argv, *axes]) == 1
        out = capsys.readouterr().out
        assert "needs" in out and "the most this engine can give is 1" in out


def test_this_machine_must_be_calibrated_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("LAB_CALIBRATION", str(tmp_path / "none.json"))
    assert cli.main(["simulate", "--model", "smollm2-135m", "--on", "this-machine"]) == 2
    assert "run `python3 -m lab calibrate`" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_on_a_terminal_and_nothing_elsewhere() -> None:
    work, model = traces.azure(AZURE, limit=20), simulated()
    for stream in (Terminal(), io.StringIO()):
        line = Line(every=0.0, stream=stream)
        watched = run(work, Watched(model, 20, line), batching="continuous:4")
        line.clear()
        text = stream.getvalue()
        assert watched.to_dict() == run(work, model, batching="continuous:4").to_dict()
        assert ("request 20 of 20" in text and text.endswith("\r")) if stream.isatty() else text == ""
        assert "\n" not in text


def test_options_cannot_be_shortened(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", "--batch", "static:4"])
    assert ended.value.code == 2 and "--batch" in capsys.readouterr().err
