"""`lab.simulated` and its runner: pools from memory, stretches equal to single steps, and what cannot be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import lab
from lab.errors import BadPolicy, DoesNotFit, UnknownName
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request
from lab.simulation.costs import Costs
from lab.simulation.hardware import device
from lab.simulation.shapes import model_shape
from lab.simulation.stretch import ends_of
from lab.simulation.work import work_of


def decode_plan(contexts: list[int], carried: list[int], attention: str) -> StepPlan:
    """One-token rows at these contexts, and finished rows that a static batch still carries."""
    rows = [Row(Request(i, None, num_prompt=n), n, 1, samples=True) for i, n in enumerate(contexts)]
    rows += [Row(Request(99 + i, None, num_prompt=n), n, 0, False, padding=1) for i, n in enumerate(carried)]
    return StepPlan(rows, attention)


def one_by_one(model, contexts: list[int], carried: list[int], attention: str, steps: int, copies=()):
    """The same steps, each priced on its own: (ends, flops, bytes)."""
    runner, now, ends, flops, moved = model.runner(100), 0.0, [], 0.0, 0.0
    for step in range(steps):
        plan = decode_plan([n + step for n in contexts], carried, attention)
        plan.copies = list(copies) if step == 0 else []
        result = runner.run(plan)
        now, flops, moved = now + result.seconds, flops + result.flops, moved + result.bytes
        ends.append(now)
        assert result.ends is None and result.modelled
    return ends, flops, moved


@pytest.mark.parametrize("attention", ["packed", "padded"])
@pytest.mark.parametrize("options", [{}, {"tp": 2}, {"pp": 2, "microbatches": 3}])
def test_a_stretch_is_its_single_steps(attention: str, options) -> None:
    draw, model = random.Random(7), lab.simulated("llama-3-8b", "a100-sxm", **options)
    for _ in range(10):
        contexts = [draw.randint(1, 900) for _ in range(draw.randint(1, 9))]
        carried = [draw.randint(1, 1500) for _ in range(draw.choice([0, 0, 2]))]
        copies = [BlockCopy("out", 0, 1), BlockCopy("copy", 1, 2)][: draw.randint(0, 2)]
        steps = draw.randint(2, 800)
        plan = decode_plan(contexts, carried, attention)
        plan.repeat, plan.copies = steps, copies
        result = model.runner(100).run(plan)
        ends, flops, moved = one_by_one(model, contexts, carried, attention, steps, copies)
        assert len(result.ends) == steps and result.seconds == result.ends[-1]
        assert result.ends == pytest.approx(ends, rel=1e-11)
        assert result.flops == pytest.approx(flops, rel=1e-12) and result.bytes == pytest.approx(moved, rel=1e-12)


def test_a_stretch_ends_with_the_first_step_that_reaches_until() -> None:
    model, contexts = lab.simulated(), [100, 700, 300]
    ends, _, _ = one_by_one(model, contexts, [], "packed", 60)
    for until, steps in ((ends[0] * 0.5, 1), (ends[9] * 1.0000001, 11), (ends[9] * 0.9999999, 10), (1e9, 60), (0.0, 1)):
        plan = decode_plan(contexts, [], "packed")
        plan.repeat, plan.until = 60, until
        assert len(model.runner(100).run(plan).ends) == steps


def test_a_plan_with_a_chunk_is_never_repeated() -> None:
    costs = lab.simulated().costs
    plan = StepPlan([Row(Request(0, None, num_prompt=99), 0, 64, samples=False)])
    assert ends_of(costs, work_of(plan), 50) == [costs.seconds(work_of(plan))]


def test_price_runner_and_peaks_agree() -> None:
    model = lab.simulated("llama-3-70b", "h100-sxm", tp=4)
    plan = decode_plan([500] * 16, [], "packed")
    result = model.runner(10).run(plan)
    assert model.price(plan) == result.seconds
    assert model.peaks().flops == 4 * 989e12 and "simulated" in model.peaks().source
    assert result.tokens == result.margins == [None] * 16
    assert 0.3 < result.bytes / result.seconds / model.peaks().bytes_per_s < 0.9  # MBU of a decode
    assert result.flops / result.seconds / model.peaks().flops < 0.1  # and its MFU


def test_operations_are_those_that_the_real_runner_counts() -> None:
    pytest.importorskip("torch")
    from lab.simulation.calibrate import shape_of

    real = lab.load_model("tiny")
    costs = Costs(shape_of(real), device("l4"), dtype="fp16")
    rows = [
        Row(Request(i, None, num_prompt=n), n - count, count, True) for i, (n, count) in enumerate([(90, 33), (50, 1)])
    ]
    plan = StepPlan([*rows, Row(Request(9, None, num_prompt=64), 20, 40, samples=False)])
    assert costs.flops(work_of(plan)) == real.runner(16).flops(plan)


# -- memory --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, gigabytes, tp, slots",
    # vLLM (arXiv:2309.06180), table 1: tokens that fit beside the weights on A100s of that memory
    [("opt-13b", 40, 1, 15_700), ("opt-66b", 40, 4, 9_700), ("opt-175b", 80, 8, 60_100)],
)
def test_pools_come_out_as_in_the_vllm_paper(name: str, gigabytes: int, tp: int, slots: int) -> None:
    card = replace(device("a100-sxm"), memory=gigabytes * 2**30)
    model = lab.simulated(name, card, tp=tp)
    assert model.default_blocks(16) * 16 == pytest.approx(slots, rel=0.07)


def test_lab_run_uses_the_whole_device() -> None:
    model = lab.simulated("llama-3-8b", on="h100-sxm")
    engine = lab.build_engine(model, [])
    assert engine.memory.num_blocks == model.default_blocks(16) == 29_205
    assert lab.build_engine(model, [], blocks=77).memory.num_blocks == 77


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would() -> None:
    with pytest.raises(DoesNotFit, match=r"141\.1 GB of weights.*leave 77\.3 GB.*63\.8 GB short.*tp=2 would do"):
        lab.simulated("llama-3-70b", on="h100-sxm")
    with pytest.raises(DoesNotFit, match=r"0\.6 GB short.*tp=2 or on='(l4|rtx-4090)' would do"):
        lab.simulated("llama-3-8b", on="t4")
    with pytest.raises(DoesNotFit, match=r"349\.2 GB of weights.*No group of up to 8 l4 would do, nor any one device"):
        lab.simulated("opt-175b", on="l4")  # 16 of them would have the room, 8 × 23.2 GB have not
    with pytest.raises(DoesNotFit, match=r"tp=6 would do"):  # 96 heads, a sixth each: 6 × 77.3 GB
        lab.simulated("opt-175b", on="a100-sxm")
    with pytest.raises(DoesNotFit, match=r"pp=3 would do"):  # 60 layers in 3 stages; 60 heads, 7 cannot share them
        lab.simulated(replace(model_shape("llama-3-70b"), heads=61, kv_heads=61), on="h100-sxm")
    lab.simulated("llama-3-8b", on="t4", tp=2)
    lab.simulated("llama-3-8b", on="t4", pp=2)


@pytest.mark.parametrize(
    "options, error, says",
    [
        (dict(model="lama-3-8b"), UnknownName, "did you mean llama-3-8b"),
        (dict(on="h100sxm"), UnknownName, "did you mean h100-sxm"),
        (dict(tp=0), BadPolicy, "tp.* of 0; it must be at least 1"),
        (dict(tp=3), BadPolicy, "tp=3 cannot share 32 heads .* 1, 2, 4, 8, 16, 32 can"),
        (dict(tp=16), BadPolicy, "16 × h100-sxm: the table has no link"),
        (dict(pp=33), BadPolicy, "33 pipeline stages for 32 layers"),
        (dict(pp=2, microbatches=0), BadPolicy, "microbatches of 0"),
        (dict(dtype="fp32"), BadPolicy, "h100-sxm has no peak for fp32; it has bf16, fp16"),
        (dict(on="t4", tp=2, dtype="bf16"), BadPolicy, "t4 has no peak for bf16; it has fp16"),
    ],
)
def test_what_cannot_be_is_said(options, error, says: str) -> None:
    with pytest.raises(error, match=says):
        lab.simulated(**options)


# -- the whole engine ----------------------------------------------------------------------------------------
def test_fifty_chats_on_an_h100() -> None:
    work = lab.chat_workload(requests=50, rate=4.0, seed=0)
    report = lab.run(work, lab.simulated("llama-3-8b", on="h100-sxm"), batching="continuous:32").to_dict()
    assert report["tpot_s"]["p50"] == pytest.approx(0.007, abs=0.001)  # 16 GB of weights at 3.35 TB/s take 4.8 ms
    assert 0.006 < report["ttft_s"]["p50"] < 0.02
    assert report["clock"] == "virtual" and report["computed_tokens"] > 50 * 20


def test_a_faster_device_finishes_a_crowd_sooner_in_the_order_of_bandwidths() -> None:
    crowd = lab.chat_workload(requests=24, rate=1e6, seed=1)
    names = ("l4", "rtx-4090", "a100-sxm", "h100-sxm", "h200-sxm")
    speeds = [lab.run(crowd, lab.simulated("llama-3-8b", on=name)).to_dict()["output_tokens_per_s"] for name in names]
    assert speeds == sorted(speeds) and speeds[-1] > 8 * speeds[0]
