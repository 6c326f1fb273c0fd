"""The command line over the tiny model: exit codes, sentences instead of tracebacks, JSON that others can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from lab import cli  # noqa: E402
from lab.errors import BadPolicy  # noqa: E402
from lab.metrics import Report  # noqa: E402
from lab.running import Comparison, SameTokens  # noqa: E402
from lab.trace import RunTrace  # noqa: E402

SMALL = ["--model", "tiny", "--requests", "3", "--max-tokens", "4", "--clock", "virtual"]

KEYS = set(
    "output_tokens_per_s total_tokens_per_s requests_per_s ttft_s tpot_s itl_s e2e_s goodput_rps computed_tokens "
    "padded_tokens recomputed_tokens cached_tokens wasted_slots peak_blocks kv_waste preemptions steps mfu mbu "
    "utilisation clock tokens_sha256".split()
)


def test_run_prints_a_table_and_writes_report_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = ["--json", str(tmp_path / "report.json"), "--trace", str(tmp_path / "run.jsonl")]
    assert cli.main(["run", *SMALL, "--check", "--slo", "ttft=100,tpot=50", *files]) == 0
    assert "output tokens/s" in capsys.readouterr().out
    record = json.loads((tmp_path / "report.json").read_text())
    assert set(record) >= KEYS and record["finished"] == 3 and record["clock"] == "virtual"
    assert record["goodput_rps"] == record["requests_per_s"] and record["slo"] == {"ttft": 100.0, "tpot": 50.0}
    again = Report.from_trace(RunTrace.read(tmp_path / "run.jsonl"), record["slo"])
    assert json.loads(json.dumps(again.to_dict())) == record


def test_axis_options_reach_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    axes = ["--batching", "static:2", "--chunking", "budget:40", "--attention", "packed", "--delivery", "token"]
    assert cli.main(["run", *SMALL, *axes, "--blocks", "100", "--block-size", "4", "--json", str(path)]) == 0
    found = json.loads(path.read_text())["axes"]
    assert found["batching"] == "static:2" and found["chunking"] == "budget:40"
    assert (found["attention"], found["delivery"]) == ("packed", "token")


def test_compare_runs_the_product_of_all_axis_values(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "out.json"
    axes = ["--batching", "static:2", "--batching", "continuous:2", "--chunking", "whole", "--chunking", "budget:32"]
    assert cli.main(["compare", *SMALL, *axes, "--ordering", "fcfs", "--json", str(path)]) == 0
    runs = json.loads(path.read_text())["runs"]
    names = ["static:2 whole", "static:2 budget:32", "continuous:2 whole", "continuous:2 budget:32"]
    assert [item["name"] for item in runs] == names
    for item in runs:
        assert set(item) >= {"name", "axes", "same_tokens", "report"} and set(item["report"]) >= KEYS
        assert item["same_tokens"] in ("yes", "tie")
        assert item["name"] == f"{item['axes']['batching']} {item['axes']['chunking']}"
    assert runs[0]["report"]["padded_tokens"] > 0 == runs[2]["report"]["padded_tokens"]
    assert runs[0]["report"]["tokens_sha256"] is not None
    table = capsys.readouterr().out
    assert "same tokens" in table and "continuous:2 budget:32" in table


def test_several_steps_in_flight_give_the_same_tokens(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    lanes = ["--lanes", "one", "--lanes", "split:2", "--lanes", "phases", "--clock", "wall"]
    assert cli.main(["compare", *SMALL, "--batching", "continuous:4", *lanes, "--json", str(path)]) == 0
    runs = json.loads(path.read_text())["runs"]
    assert [item["name"] for item in runs] == ["one", "split:2", "phases"]
    assert {item["same_tokens"] for item in runs} <= {"yes", "tie"}
    assert runs[1]["report"]["axes"]["lanes"] == "split:2" and "lanes" not in runs[0]["report"]["axes"]


def test_compare_fails_where_tokens_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdicts(*texts: str):
        same = {text: SameTokens(text, 0, 0, 1.0) for text in texts}
        return lambda *args, **options: Comparison({text: Report() for text in texts}, same)

    monkeypatch.setattr("lab.running.compare", verdicts("yes", "no"))
    assert cli.main(["compare", *SMALL]) == 1
    monkeypatch.setattr("lab.running.compare", verdicts("yes", "tie"))
    assert cli.main(["compare", *SMALL]) == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run", *SMALL, "--batching", "stattic:8"], "batching 'stattic:8' is not known; there are"),
        (["run", *SMALL, "--batching", "static:0"], "max_batch 0"),
        (["run", *SMALL, "--chunking", "budget:-1"], "token budget of -1"),
        (["run", *SMALL, "--blocks", "0"], "blocks of 0"),
        (["run", *SMALL, "--block-size", "0"], "block size of 0"),
        (["run", *SMALL, "--lanes", "split:0"], "number of lanes of 0"),
        (["run", *SMALL, "--lanes", "streams"], "there are one, split:N, phases"),
        (["run", *SMALL, "--lanes", "split:2"], "shows only when they run"),
        (["run", *SMALL, "--batching", "static:2", "--lanes", "split:2", "--clock", "wall"], "2 lanes with static"),
        (["run", *SMALL, "--delivery", "batch"], "continuous batching has none"),
        (["run", *SMALL, "--rate", "2", "--load", "1"], "not both"),
        (["run", *SMALL, "--rate", "-2"], "rate is -2.0"),
        (["run", *SMALL, "--slo", "ttft"], "--slo 'ttft': write ttft or"),
        (["run", *SMALL, "--slo", "speed=1"], "SLO on speed"),
        (["run", *SMALL[:2], "--requests", "0"], "requests of 0;"),
        (["run", *SMALL, "--temperature", "-1"], "temperature is -1.0"),
        (["run", "--model", "no/such/folder", "--requests", "1"], "no/such/folder"),
        (["compare", *SMALL, "--batching", "static:2", "--batching", "static:2"], "given twice"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_a_mistake_ends_in_one_sentence(argv: list[str], says: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.startswith(f"{argv[0]}: ")
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err


@pytest.mark.parametrize("argv", [[], ["runn"], ["--help-me"]])
def test_an_unknown_command_lists_those_there_are(argv: list[str], capsys: pytest.CaptureFixture) -> None:
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert "unknown command" in error and "run" in error and "compare" in error


@pytest.mark.parametrize("argv", [["run", "--requests", "many"], ["run", "--clock", "sun"], ["run", "--no-such"]])
def test_argparse_names_what_it_does_not_know(argv: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2 and argv[1] in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 1)])
def test_interrupted(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(argv: list[str]) -> int:
        raise error

    monkeypatch.setitem(cli.COMMANDS, "run", cli.Command("", raises))
    assert cli.main(["run"]) == code


def test_runs_are_named_by_what_differs() -> None:
    values = {"batching": ["static:8", "continuous:8"], "chunking": ["whole"]}
    assert list(cli.combinations(values)) == ["static:8", "continuous:8"]
    assert cli.combinations(values)["static:8"] == {"batching": "static:8", "chunking": "whole"}
    assert list(cli.combinations({"batching": ["static:8"]})) == ["static:8"]
    assert cli.combinations({}) == {"default": {}}
    with pytest.raises(BadPolicy, match="static:8 is given twice"):
        cli.combinations({"batching": ["static:8", "static:8"]})
