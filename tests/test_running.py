from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from oracles import HashModel, solo

import lab
from lab.errors import BadPolicy
from lab.metrics import Report, RequestTimes
from lab.request import SamplingParams
from lab.running import LOGIT_TOLERANCE, SameTokens, build_axes, build_engine, compare, run, same_tokens
from lab.simulation.priced import Priced
from lab.workload import chat_workload, fixed_workload

PROMPTS = [tuple((index * 31 + place * 7) % 1000 for place in range(3 + 4 * index)) for index in range(6)]
WORK = fixed_workload(PROMPTS, [5, 1, 9, 4, 7, 3], [0.0, 0.0, 0.01, 0.02, 0.3, 0.31])


def expected() -> dict[int, list[int]]:
    limits = [spec.sampling.max_tokens for spec in WORK.specs]
    return {
        index: solo(list(prompt), SamplingParams(max_tokens=limit, ignore_eos=True))
        for index, (prompt, limit) in enumerate(zip(PROMPTS, limits, strict=True))
    }


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(batching="static:2"),
        dict(batching="static:4", attention="packed"),
        dict(batching="continuous:3", attention="padded"),
        dict(chunking="budget:1"),
        dict(chunking="budget:7", blocks=9, block_size=4),
        dict(chunking="whole"),
        dict(batching="static:3", chunking="budget:5", delivery="token"),
        dict(batching=lab.Continuous(2), chunking=lab.TokenBudget(6)),
    ],
    ids=lambda options: ",".join(f"{name}={getattr(value, 'name', value)}" for name, value in options.items()),
)
def test_run_gives_the_same_tokens_under_every_combination(options: dict) -> None:
    report = run(WORK, HashModel(), check=True, **options)
    assert report.outputs == expected()
    assert report.finished == 6 and report.output_tokens == 29
    work = sum(len(prompt) for prompt in PROMPTS) + 29 - 6
    assert report.computed_tokens == work + report.dropped_tokens


def test_the_report_names_what_was_run() -> None:
    report = run(WORK, HashModel(), batching="static:2", blocks=40, block_size=8)
    assert (
        report.axes.items() >= dict(batching="static:2", chunking="whole", attention="padded", delivery="batch").items()
    )
    assert report.trace.meta["num_blocks"] == 40 and report.trace.meta["block_size"] == 8
    assert report.clock == "virtual" and report.measured is False
    assert run(WORK, HashModel()).axes["chunking"] == "budget:256"


def test_priced_runs_are_deterministic() -> None:
    work = fixed_workload([30, 20, 10], [8, 8, 8], [0.0, 0.1, 0.2])
    first, second = (run(work, Priced()).to_dict() for _ in range(2))
    assert first == second and first["tokens_sha256"] is None


def test_a_priced_step_costs_its_tokens_and_its_padding() -> None:
    report = run(fixed_workload([4, 10], [1, 1]), Priced(step=0.02, token=0.001), batching="static:2")
    assert report.duration_s == pytest.approx(0.02 + 0.001 * (14 + 6))


def test_real_tokens_can_be_charged_modelled_seconds() -> None:
    report = run(WORK, Priced(HashModel(), step=1.0, token=0.0))
    assert report.outputs == expected() and report.duration_s == pytest.approx(report.steps * 1.0, abs=1.0)
    assert report.trace.meta["model"] == "hash (priced)" and report.clock == "virtual"


def test_wall_clock_on_request() -> None:
    report = run(fixed_workload([3], [2]), Priced(step=0.001, token=0.0), clock="wall")
    assert report.clock == "wall" and report.duration_s >= 0.002


def test_one_request_that_never_fits_does_not_stop_the_run() -> None:
    report = run(fixed_workload([5, 500, 6], [3, 3, 3]), Priced(), blocks=4)
    assert report.finished == 2
    assert {id: times.finish_reason for id, times in report.times.items()} == {0: "length", 1: "refused", 2: "length"}
    assert "needs 32 blocks, the most this engine can give is 4" in report.trace.requests[1].error


def test_without_blocks_the_pool_holds_everybody() -> None:
    requests = WORK.requests(HashModel())
    assert build_engine(HashModel(), requests, block_size=4).memory.num_blocks == sum(
        math.ceil(each.max_total / 4) for each in requests
    )
    crowd = fixed_workload([100] * 400, [10] * 400).requests(Priced())
    assert build_engine(Priced(), crowd).memory.num_blocks == 1024
    giant = fixed_workload([100_000, 5], [10, 10]).requests(Priced())
    assert build_engine(Priced(), giant).memory.num_blocks == math.ceil(100_009 / 16)
    assert build_engine(Priced()).memory.num_blocks == 1024


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (dict(batching="statik"), "batching 'statik'"),
        (dict(attention="round"), "attention 'round' is not known; there are packed and padded"),
        (dict(delivery="pigeon"), "delivery 'pigeon' is not known; there are token and batch"),
        (dict(batching="continuous", delivery="batch"), "continuous batching has none"),
        (dict(memory="heap"), "memory 'heap' is not known; there"),
        (dict(prefix_cache="magic"), "prefix cache 'magic' is not known; there"),
        (dict(blocks=0), "blocks of 0"),
        (dict(blocks=-1), "blocks of -1"),
        (dict(block_size=0), "block size of 0"),
        (dict(block_size=-16), "block size of -16"),
        (dict(clock="sun"), "clock 'sun'"),
        (dict(slo={"speed": 1}), "SLO on speed"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_a_bad_policy(options: dict, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        run(WORK, HashModel(), **options)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(BadPolicy, match="option 'batchin' is not known; did you mean batching"):
        run(WORK, HashModel(), batchin="static")


@pytest.mark.parametrize(
    "price", [dict(step=-1.0), dict(token=-0.5), dict(step=math.nan), dict(token=math.inf)], ids=str
)
def test_prices_are_finite_and_not_negative(price: dict) -> None:
    with pytest.raises(BadPolicy):
        Priced(**price)


@pytest.mark.parametrize("limit", [math.nan, -1.0])
def test_slo_limits_are_numbers_from_zero(limit: float) -> None:
    with pytest.raises(BadPolicy):
        run(WORK, HashModel(), slo={"ttft": limit})


def test_static_computes_prompts_whole_and_others_in_chunks_unless_told() -> None:
    assert build_axes("static:2").chunking.name == "whole"
    assert build_axes("continuous:2").chunking.max_tokens == 256
    assert build_axes("static:2", chunking="budget:9").chunking.max_tokens == 9
    assert (build_axes("static:2").attention, build_axes("static:2").delivery) == ("padded", "batch")
    assert build_axes("static:2", delivery="token").delivery == "token"


# -- same tokens -------------------------------------------------------------------------------------------------
def made(outputs: dict[int, list[int]], margins: dict[int, list[float]] | None = None) -> Report:
    report = Report()
    for id, output in outputs.items():
        report.times[id] = RequestTimes(id, 0.0, output=output, margins=(margins or {}).get(id, [1.0] * len(output)))
    return report


CLOSE, FAR = LOGIT_TOLERANCE / 2, LOGIT_TOLERANCE * 2


def test_same_tokens_yes() -> None:
    assert same_tokens(made({0: [1, 2], 1: []}), made({0: [1, 2], 1: []})) == SameTokens("yes")
    assert str(SameTokens("yes")) == "yes"


def test_same_tokens_tie_names_request_position_and_margin() -> None:
    reference = made({0: [1, 2], 1: [3, 4, 5]}, {1: [1.0, CLOSE, 1.0]})
    verdict = same_tokens(reference, made({0: [1, 2], 1: [3, 9, 9]}))
    assert verdict == SameTokens("tie", 1, 1, CLOSE)
    assert str(verdict) == "tie (request 1, token 1, margin 1.0e-03)"


def test_same_tokens_no_at_a_clear_margin() -> None:
    verdict = same_tokens(made({0: [1, 2]}, {0: [1.0, FAR]}), made({0: [1, 9]}))
    assert verdict == SameTokens("no", 0, 1, FAR)


def test_a_tie_at_exactly_the_tolerance_is_no_tie() -> None:
    assert same_tokens(made({0: [1]}, {0: [LOGIT_TOLERANCE]}), made({0: [2]})).verdict == "no"


def test_only_the_first_difference_of_a_request_decides() -> None:
    reference = made({0: [1, 2, 3]}, {0: [CLOSE, FAR, FAR]})
    assert same_tokens(reference, made({0: [9, 8, 7]})) == SameTokens("tie", 0, 0, CLOSE)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_no_is_worse_than_tie_wherever_it_comes(order: tuple[int, int]) -> None:
    tie, clear = order
    reference = made({0: [1], 1: [1]}, {tie: [CLOSE], clear: [FAR]})
    assert same_tokens(reference, made({0: [9], 1: [9]})) == SameTokens("no", clear, 0, FAR)


def test_the_margin_is_the_references() -> None:
    other = made({0: [9]}, {0: [CLOSE]})
    assert same_tokens(made({0: [1]}, {0: [FAR]}), other).verdict == "no"


def test_a_missing_token_or_margin_is_a_no() -> None:
    assert same_tokens(made({0: [1, 2]}), made({0: [1]})) == SameTokens("no", 0, 1, 1.0)
    assert same_tokens(made({0: [1]}), made({0: [1, 2]})) == SameTokens("no", 0, 1, None)
    assert str(SameTokens("no", 0, 1, None)) == "no (request 0, token 1, margin unknown)"


def test_compare_runs_the_same_requests_and_judges_each_run() -> None:
    runs = {"static": dict(batching="static:2"), "continuous": dict(batching="continuous:2")}
    found = compare(WORK, HashModel(), runs, block_size=4)
    assert list(found.reports) == ["static", "continuous"]
    assert {name: same.verdict for name, same in found.same.items()} == {"static": "yes", "continuous": "yes"}
    assert found["static"].tokens_sha256 == found["continuous"].tokens_sha256 is not None
    assert found["continuous"].padded_tokens == 0 < found["static"].padded_tokens
    assert found["continuous"].ttft_s.p95 < found["static"].ttft_s.p95
    table = found.summary().splitlines()
    assert table[0].split() == ["static", "continuous"]
    assert any(line.split() == ["same", "tokens", "yes", "yes"] for line in table)
    record = found.to_dict()["runs"]
    assert [item["name"] for item in record] == ["static", "continuous"]
    assert [item["same_tokens"] for item in record] == ["yes", "yes"]
    assert record[0]["axes"]["batching"] == "static:2" and record[0]["report"]["padded_tokens"] > 0


def test_compare_finds_a_run_with_other_tokens() -> None:
    class Broken(HashModel):
        """Every runner after the first forgets its first block's last slot."""

        made = 0

        def runner(self, num_blocks: int, block_size: int, **options):
            runner = super().runner(num_blocks, block_size)
            Broken.made += 1
            if Broken.made > 1:
                sample = runner._sample
                runner._sample = lambda row: sample(row) ^ 1
            return runner

    found = compare(WORK, Broken(), {"one": {}, "two": {}})
    assert found.same["two"].verdict == "no" and found.same["two"].request == 0 and found.same["two"].position == 0


def test_compare_wants_a_run() -> None:
    with pytest.raises(BadPolicy, match="at least one run"):
        compare(WORK, HashModel(), {})


def test_round_trip_of_a_run_through_a_file(tmp_path: Path) -> None:
    from lab.trace import RunTrace

    report = run(WORK, HashModel(), batching="static:2", slo={"ttft": 0.1})
    report.trace.write(tmp_path / "run.jsonl")
    again = Report.from_trace(RunTrace.read(tmp_path / "run.jsonl"), {"ttft": 0.1})
    assert again.to_dict() == report.to_dict() and again.outputs == report.outputs


def test_names_are_public() -> None:
    for name in lab.__all__:
        if name not in ("load_model", "live", "course"):
            assert getattr(lab, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        lab.nothing  # noqa: B018


def test_chat_workload_runs_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.workload.chat_prompts", lambda: (("a b c d " * 5, 30), ("hello " * 9, 12)))
    report = run(chat_workload(8, rate=20.0, max_tokens=4), Priced())
    assert report.finished == 8 and report.output_tokens == 32


@pytest.mark.parametrize("memory", ["reserved:max", "reserved:pow2", "reserved:oracle"])
def test_the_default_pool_fits_what_is_reserved(memory: str) -> None:
    report = run(WORK, HashModel(), memory=memory, check=True)
    assert report.finished == len(WORK) and not report.refused


def test_a_request_that_can_never_fit_neither_sizes_the_pool_nor_stops_the_others() -> None:
    work = lab.fixed_workload([tuple(range(10))] * 3, [5, 10**9, 5])
    report = run(work, HashModel())
    assert report.finished == 2 and list(report.refused) == [1]
    assert "tokens of context" in report.refused[1] and "refused (run): request 1 needs" in report.summary()
    assert report.trace.meta["num_blocks"] < 10


def test_the_default_pool_counts_the_samples_of_those_it_serves() -> None:
    def ask(id: int, output: int, n: int) -> lab.Request:
        return lab.Request(id, list(range(16)), lab.SamplingParams(max_tokens=output, n=n))

    engine = build_engine(HashModel(), [ask(0, 10**9, 1), ask(1, 17, 5), ask(2, 1, 1)])
    assert engine.memory.num_blocks == 5 * 2 + 1  # the first is refused, and its n counts for nobody else


def test_a_load_that_cannot_be_measured_says_why() -> None:
    work = replace(lab.fixed_workload([(1, 2)], [5000]), load=1.0)
    with pytest.raises(lab.errors.BadWorkload, match="none of these requests can be served"):
        run(work, HashModel())


def test_a_timer_that_never_advances_ends_in_an_error() -> None:
    from lab.batching.protocol import Admission

    class Past(lab.Continuous):
        def admit(self, view):
            return Admission(0, wake_at=view.now)

    work = lab.fixed_workload([(1, 2), (3, 4)], [2, 2], arrivals=[0.0, 1.0])
    with pytest.raises(BadPolicy, match="never starts them"):
        run(work, HashModel(), batching=Past(2))


def test_host_blocks_without_swapping_make_no_sense() -> None:
    with pytest.raises(BadPolicy, match="5 host blocks"):
        run(WORK, HashModel(), host_blocks=5)


def test_an_option_that_does_not_exist_is_named_with_those_near_it() -> None:
    with pytest.raises(BadPolicy, match="option 'blok' is not known; did you mean block"):
        run(fixed_workload([4], [2]), Priced(), blok=3)


def test_a_pool_that_nobody_could_manage_is_refused_before_it_is_built() -> None:
    with pytest.raises(BadPolicy, match="a pool of 1,000,000,000 blocks; at most 16,777,216"):
        run(fixed_workload([4], [2]), Priced(), blocks=10**9)


@pytest.mark.parametrize("lanes", [None, 2])
def test_lanes_that_are_no_text(lanes) -> None:
    with pytest.raises(BadPolicy, match="there are one, split:N"):
        run(fixed_workload([4], [2]), Priced(), lanes=lanes)
