"""What notebook 11 stands on: single steps, knees, replayed runs, a mistyped table, pictures."""

import pytest

import lab
from lab.course import plots_simulation, scale
from lab.course.exercises import nb11
from lab.course.wrong_price import priced, published
from lab.errors import BadPolicy
from lab.simulation import accuracy
from lab.workload import fixed_workload

REFERENCE = lab.Priced(step=0.040, token=0.002)


def test_a_knee_is_the_first_batch_that_takes_twice_as_long():
    assert scale.knee(REFERENCE) == 22  # 40 ms + 22 × 2 ms = 84 ms = 2 × 42 ms
    h100 = lab.simulated("llama-3-8b", on="h100-sxm")
    for context in (1, 1000):
        bend, twice = scale.knee(h100, context), 2 * scale.decode_seconds(h100, 1, context)
        assert scale.decode_seconds(h100, bend - 1, context) < twice <= scale.decode_seconds(h100, bend, context)
    assert scale.knee(h100, 1000) < scale.knee(h100) / 3  # keys and values are not shared


def test_no_knee_where_a_step_costs_the_same_for_everybody():
    with pytest.raises(BadPolicy, match="less than twice"):
        scale.knee(lab.Priced(step=0.01, token=0.0))


def test_plans_have_the_tokens_and_the_context_asked_for():
    decode, prompt = scale.decode_plan(3, 100), scale.prompt_plan(64, start=32)
    assert [(row.start, row.num_tokens) for row in decode.rows] == [(99, 1)] * 3
    assert [(row.start, row.num_tokens) for row in prompt.rows] == [(32, 64)]
    with pytest.raises(BadPolicy, match="0; it must be at least 1"):
        scale.decode_plan(0)


def test_pricing_a_run_again_finds_its_own_times():
    work = fixed_workload([30, 200, 7], [9, 4, 12])
    run = lab.run(work, REFERENCE, batching="continuous:2", chunking="budget:64")
    pairs = scale.priced_again(run.trace, REFERENCE.price)
    assert len(pairs) == run.steps and sum(tokens for *_, tokens in pairs) == run.computed_tokens
    assert all(told == pytest.approx(took) for took, told, _ in pairs)


def test_a_mistyped_peak_shows_at_one_end_and_bandwidth_at_the_other():
    real, sparse, slow = published("h100"), priced("h100", peak=2.0), priced("h100", bandwidth=0.5)
    assert sparse[1] == pytest.approx(real[1], rel=0.05) and sparse[4096] < 0.7 * real[4096]
    assert slow[1] > 1.5 * real[1] and slow[4096] == pytest.approx(real[4096], rel=0.25)


def test_only_two_h200_keep_both_promises_with_fewest_devices():
    assert nb11.fewest() == 2
    tokens, seconds = nb11.judged("h200-sxm", 2)
    assert tokens >= nb11.READERS * nb11.CONTEXT and seconds <= nb11.STEP_LIMIT


def test_pool_by_hand_is_the_pool_of_the_simulation():
    for name, on, tp in (("llama-3-8b", "l4", 1), ("llama-2-70b", "a100-sxm", 4)):
        model = lab.simulated(name, on=on, tp=tp)
        assert abs(nb11.pool_tokens(**nb11.sizes(model)) - 16 * model.default_blocks(16)) <= 16


@pytest.fixture
def shown(monkeypatch):
    """Figures that would have been displayed."""
    figures = []
    monkeypatch.setattr(plots_simulation, "show", figures.append)
    return figures


def test_pictures_have_alt_texts_with_their_numbers(shown):
    h100 = lab.simulated("llama-3-8b", on="h100-sxm")
    plots_simulation.replayed([(0.04, 0.044, 1), (0.2, 0.19, 64), (0.05, 0.05, 8)])
    plots_simulation.profiles(accuracy.stored()["fitted"], "Llama-2-7B")
    plots_simulation.decode_curves({"reference": REFERENCE, "h100": h100}, (1, 8, 64))
    rows = [{"policy": "a", "trace": "x", "requests/s": 2.5}, {"policy": "a", "trace": "y", "requests/s": None}]
    plots_simulation.capacities(rows)
    work = fixed_workload([100] * 4, [5] * 4)
    sweep = {size: lab.run(work, h100, batching="continuous:4", chunking=f"budget:{size}") for size in (16, 128)}
    plots_simulation.budgets({"h100": sweep})
    alts = [figure.layout.meta["alt"] for figure in shown]
    assert "median error is 5%" in alts[0] and "H100: 5.6 ms for one token" in alts[1]
    assert "reference: 22" in alts[2] and "no rate" in alts[3] and "95 %" in alts[4]
    assert all("simulated" in alt for alt in alts[1:]) and all(figure.layout.meta["table"] for figure in shown)
