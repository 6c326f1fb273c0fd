"""The eight combinations, on the virtual clock and on a tiny real model, and the arithmetic of effects."""

from math import prod

import pytest

from lab.errors import BadPolicy
from lab.execution.model import load_model
from lab.experiments.two_axes import LEVELS, METRICS, cells, crowd, two_axes
from lab.simulation.priced import Priced

SPEED, TTFT = "output tokens/s", "mean TTFT (s)"


@pytest.fixture(scope="module", params=[0, 1, 2])
def table(request):
    return two_axes(Priced(step=0.040, token=0.002), crowd(48, seed=request.param))


def test_every_combination_once_and_the_same_work_in_all(table):
    rows = table.rows()
    assert [(row["batching"], row["ordering"], row["attention"]) for row in rows] == list(cells())
    assert len(rows) == 8
    assert len({report.computed_tokens for report in table.reports.values()}) == 1
    for cell, report in table.reports.items():
        axes = report.axes
        assert axes["batching"] == f"{cell[0]}:4" and axes["ordering"] == cell[1] and axes["attention"] == cell[2]
        assert axes["chunking"] == "whole" and axes["delivery"] == "token"


def test_only_what_pads_has_padding(table):
    padding = {cell: report.padded_tokens for cell, report in table.reports.items()}
    assert padding["continuous", "fcfs", "packed"] == 0
    for order in LEVELS["ordering"]:
        assert padding["static", order, "packed"] < padding["static", order, "padded"]  # finished rows only


def test_an_effect_is_the_geometric_mean_of_ratios(table):
    reports, speed = table.reports, METRICS[SPEED]
    ratios = [
        speed(reports["continuous", order, kernel]) / speed(reports["static", order, kernel])
        for order in LEVELS["ordering"]
        for kernel in LEVELS["attention"]
    ]
    assert table.effect("batching", SPEED) == pytest.approx(prod(ratios) ** 0.25)


def test_an_interaction_is_a_ratio_of_effects_and_the_same_both_ways(table):
    for one, other in (("batching", "ordering"), ("ordering", "attention"), ("batching", "attention")):
        low, high = (table.effect(one, TTFT, **{other: level}) for level in LEVELS[other])
        assert table.interaction(one, other, TTFT) == pytest.approx(high / low)
        assert table.interaction(one, other, TTFT) == pytest.approx(table.interaction(other, one, TTFT))
    assert set(table.effects(TTFT)) == {*LEVELS, "batching × ordering", "batching × attention", "ordering × attention"}


def test_batching_and_ordering_are_nearly_independent_and_ordering_and_attention_are_not(table):
    """What notebook 09 says, for every seed."""
    assert table.effect("batching", TTFT) < 0.85 and table.effect("ordering", TTFT) < 0.9
    assert 0.93 < table.interaction("batching", "ordering", TTFT) < 1.07
    assert table.interaction("ordering", "attention", SPEED) < 0.93
    static = {
        level: table.effect("ordering", SPEED, batching="static", attention=level) for level in LEVELS["attention"]
    }
    assert static["padded"] > 1.1  # like lengths come together: less padding
    assert 0.97 < static["packed"] < 1.03  # nothing to save


def test_all_eight_give_the_same_tokens():
    table = two_axes(load_model("tiny"), crowd(6, longest=24, output=5), repeats=2)
    assert {same.verdict for same in table.comparison.same.values()} == {"yes"}
    assert all(report.measured and report.finished == 6 for report in table.reports.values())


def test_no_turn_at_all_is_refused():
    with pytest.raises(BadPolicy, match="at least 1"):
        two_axes(Priced(), crowd(4), repeats=0)
