"""What notebook 10 stands on: its traffic, lanes of one's own, what it says of the simulated device, its pictures."""

import pytest

import lab
from lab.course import plots_streams
from lab.course.exercises import nb10
from lab.course.several_lanes import (
    WISHES,
    chat,
    clear_crowd,
    crowd,
    documents,
    flights,
    mixed,
    places,
    run_lanes,
    wish,
)
from lab.course.stalls import longest_gap
from lab.errors import BadPolicy
from lab.experiments.streams import together
from lab.lanes import make_lanes

PRICES = {"step": 0.040, "token": 0.002}


@pytest.fixture(scope="module")
def h100():
    return lab.simulated("llama-3-8b", on="h100-sxm")


def test_traffic_is_the_same_each_time_and_as_described():
    assert documents(30).specs == documents(30).specs
    assert all(1000 <= spec.prompt <= 6000 and 50 <= spec.sampling.max_tokens <= 250 for spec in documents().specs)
    assert all(16 <= spec.prompt <= 128 for spec in chat().specs)
    assert {spec.arrival for spec in crowd(9).specs} == {0.0}
    assert len({spec.prompt for spec in clear_crowd(8, 32).specs}) == 8
    with pytest.raises(BadPolicy, match="clear-cut tokens, and 10000 are asked for"):
        clear_crowd(10_000, 32)


@pytest.mark.parametrize("spec", ["one", "split:2", "phases"])
def test_lanes_without_a_spec_run_as_lab_run_does(spec):
    work = mixed(12, 20.0, (5, 80), (3, 12))
    ours = run_lanes(work, lab.Priced(**PRICES), make_lanes(spec), batching="continuous:6", chunking="budget:32")
    theirs = lab.run(work, lab.Priced(**PRICES), batching="continuous:6", chunking="budget:32", lanes=spec)
    assert ours.finished == 12 and ours.steps == theirs.steps
    for mine, other in zip(flights(ours.trace), flights(theirs.trace), strict=True):
        assert mine == pytest.approx(other)


def test_every_step_has_a_line_of_its_own_while_it_is_in_flight():
    report = lab.run(mixed(16, 30.0, (5, 80), (3, 12)), lab.Priced(**PRICES), lanes="split:3")
    placed = places(report.trace)
    assert len(placed) == report.steps and {line for line, _ in placed} == {0, 1, 2}
    for line in range(3):
        mine = [step for place, step in placed if place == line]
        assert all(after.start >= before.end - 1e-9 for before, after in zip(mine, mine[1:], strict=False))


def test_the_solution_of_the_overlap_is_what_the_lab_counts():
    for spec in ("one", "split:3", "phases"):
        report = lab.run(mixed(16, 30.0, (5, 80), (3, 12)), lab.Priced(**PRICES), lanes=spec)
        air = nb10.time_together(flights(report.trace))
        busy = nb10._any_in_flight(flights(report.trace))
        assert air / busy == pytest.approx(together(report), abs=1e-9)


def test_streams_lose_with_few_decodes_and_may_win_with_very_many(h100):
    """Weights are read once per step (few); attention of one lane beside products of the other (many)."""
    for size, wins in ((10, False), (64, False), (512, True)):
        options = dict(batching=f"continuous:{size}", chunking="budget:8192")
        one, two = (lab.run(crowd(size, 32), h100, lanes=lanes, **options) for lanes in ("one", "split:2"))
        assert (two.output_tokens_per_s > one.output_tokens_per_s) is wins
        assert two.utilisation > 0.99 and one.utilisation > 0.99  # always busy, whoever wins


def test_phases_win_with_long_prompts_and_chunks_with_short_ones(h100):
    def both(work):
        options = dict(batching="continuous:128")
        chunked = lab.run(work, h100, chunking="budget:2048", **options)
        return chunked, lab.run(work, h100, chunking="whole", lanes="phases", **options)

    chunked, phases = both(documents(40))
    assert phases.itl_s.p95 < chunked.itl_s.p95 / 2 and longest_gap(phases) < longest_gap(chunked) / 2
    assert phases.output_tokens_per_s > chunked.output_tokens_per_s
    chunked, phases = both(chat(60))
    assert phases.itl_s.p95 > chunked.itl_s.p95 and phases.ttft_s.p50 > chunked.ttft_s.p50


def test_each_wish_has_lanes_of_its_own(h100):
    granted = {
        mix: {lanes for lanes in ("one", "split:2", "phases", "phases:0.35") if wish(mix, lanes, h100)[0]}
        for mix in WISHES
    }
    assert granted == {"documents": {"phases:0.35"}, "chat": {"one"}, "crowd": {"split:2"}}


def test_pictures_say_what_they_show(capsys):
    work = mixed(12, 20.0, (5, 80), (3, 12))
    reports = {lanes: lab.run(work, lab.Priced(**PRICES), lanes=lanes) for lanes in ("one", "split:2")}
    plots_streams.in_flight(reports, seconds=0.5)
    plots_streams.over_batch([{"requests": 4, "split:2": 0.61}, {"requests": 512, "split:2": 1.19}])
    row = {"way": "phases", "TTFT p50 (ms)": 285.0, "longest gap (ms)": 20.2}
    plots_streams.trade({"documents": [row, row | {"way": "whole", "longest gap (ms)": 1878.0}]}, *list(row)[1:])
    share = {"for decodes": 0.1, "a": 284.7, "b": 11.3}
    plots_streams.fractions([share, share | {"for decodes": 0.5, "a": 2713.0}], "for decodes", ("a", "b"))
    shown = capsys.readouterr().out
    for said in (
        "one: 0% of the time with two",
        f"split:2: {together(reports['split:2']):.0%} of the time with two",
        "split:2 from 0.61 to 1.19",
        "lowest longest gap (ms) with phases, 20.2 ms, at a TTFT p50 (ms) of 285 ms",
        "for decodes from 0.1 to 0.5: a from 284.7 to 2713",
    ):
        assert said in shown, said
