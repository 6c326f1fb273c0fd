"""What notebooks 07 and 09 stand on: counted chunks, dealt budgets, rules made policies, planted bugs, pictures."""

import pytest

from lab.cluster.placement import place
from lab.cluster.prefill import PrefillCost, triangle
from lab.course import broken_scheduling, plots_scheduling
from lab.course.chunk_work import chunk_table, chunks_of
from lab.course.dealing import deal_all, dealt, longest_pause
from lab.course.exercises import nb07, nb09
from lab.course.impatience import in_time, one_long_among_short, pressed_workload, ttft_of, two_classes
from lab.course.mixed_steps import piggyback
from lab.course.next_rule import NextRule
from lab.course.stalls import largest_chunk, late_tokens, longest_gap, mixed_workload, stall_workload
from lab.errors import BadPolicy
from lab.execution.model import load_model
from lab.running import run
from lab.simulation.priced import Priced
from lab.workload import fixed_workload

PRICES = {"step": 0.040, "token": 0.002}


def test_the_triangular_table_of_a_prompt_of_20_000_tokens():
    assert [chunk.pairs for chunk in chunks_of(20_000, 5_000)] == [12_502_500, 37_502_500, 62_502_500, 87_502_500]
    rows = {row.size: row for row in chunk_table(20_000, (512, 2_000, 5_000, 10_000, 20_000))}
    assert {row.pairs for row in rows.values()} == {triangle(20_000)} == {200_010_000}
    assert {size: (row.count, row.reread) for size, row in rows.items()} == {
        512: (40, 399_360),
        2_000: (10, 90_000),
        5_000: (4, 30_000),
        10_000: (2, 10_000),
        20_000: (1, 0),
    }
    shares = {size: f"{100 * row.last:.1f}" for size, row in rows.items()}
    assert shares == {512: "0.3", 2_000: "19.0", 5_000: "43.7", 10_000: "75.0", 20_000: "100.0"}
    assert f"{100 * rows[512].most:.1f}" == "5.0"


def test_whole_prompts_stall_the_readers_and_a_budget_bounds_the_gap():
    work = stall_workload()
    whole, chunked = (run(work, Priced(**PRICES), batching="continuous:8", chunking=c) for c in ("whole", "budget:64"))
    assert longest_gap(whole) > 1.8 and largest_chunk(whole) == 900
    assert longest_gap(chunked) <= 0.040 + 0.002 * 64 + 1e-9 and largest_chunk(chunked) == 61


def test_late_tokens_count_against_a_reader_with_a_buffer():
    work, prices = mixed_workload(rate=1.0), Priced(**PRICES)
    shares = {
        spec: late_tokens(run(work, prices, batching="continuous:8", chunking=spec, predict="model"), 0.15)
        for spec in ("whole", "budget:32", "budget:512", "slack:0.15")
    }
    assert shares["slack:0.15"] == 0 and shares["budget:32"] == 0
    assert shares["whole"] > 0.1 and shares["budget:512"] > 0.1


def test_dealing_is_what_the_engine_does_and_refuses_nonsense():
    prompts, outputs = [20, 150, 9], [5, 3, 8]
    engine = dealt(run(fixed_workload(prompts, outputs), Priced(), batching="continuous:8", chunking="budget:32").trace)
    assert deal_all(nb07.share_out, 32, prompts, outputs) == engine
    assert longest_pause(engine, prompts) == 1
    assert longest_pause(deal_all(nb07._prompts_first, 32, prompts, outputs), prompts) > 1
    for rule in (lambda budget, left: [0] * len(left), lambda budget, left: left, lambda budget, left: [1]):
        with pytest.raises(BadPolicy, match="step 0"):
            deal_all(rule, 32, prompts, outputs)


def test_riding_along_is_measured_with_as_many_tokens_as_the_chunk_alone():
    steps = piggyback(load_model("tiny"), chunk=32, decodes=4, context=20, repeats=2)
    assert [step.tokens for step in steps] == [32, 4, 32] and all(step.step_ms > 0 for step in steps)


def test_a_rule_made_an_order_is_that_order():
    work = two_classes(80, rate=2.6, seed=5)
    ours, theirs = (
        run(work, Priced(**PRICES), batching="continuous:4", ordering=order, blocks=2000)
        for order in (NextRule(nb09.next_up, 5.0), "aged:shortest-prompt:5")
    )
    assert nb09._joins(ours.trace) == nb09._joins(theirs.trace)


def test_orders_on_two_classes_as_notebook_09_says():
    reports = {
        order: run(two_classes(160, 2.4), Priced(**PRICES), batching="continuous:8", ordering=order, blocks=4000)
        for order in ("fcfs", "shortest-prompt", "earliest-deadline", "aged:shortest-prompt:10")
    }
    mean = {order: report.ttft_s.mean for order, report in reports.items()}
    worst = {order: max(ttft_of(report, True) + ttft_of(report, False)) for order, report in reports.items()}
    assert mean["shortest-prompt"] == min(mean.values()) and worst["shortest-prompt"] == max(worst.values())
    assert worst["earliest-deadline"] < worst["shortest-prompt"] / 3
    assert in_time(reports["earliest-deadline"]) > in_time(reports["fcfs"]) + 0.3
    speeds = [report.output_tokens_per_s for report in reports.values()]
    assert max(speeds) < 1.01 * min(speeds)


def test_starvation_has_no_bound_without_ageing():
    waits = [
        run(
            one_long_among_short(n, 0.25), Priced(**PRICES), batching="continuous:1", ordering=o, chunking="budget:1024"
        )
        .times[0]
        .ttft
        for n, o in (
            (50, "shortest-prompt"),
            (100, "shortest-prompt"),
            (50, "aged:shortest-prompt:5"),
            (100, "aged:shortest-prompt:5"),
        )
    ]
    assert waits[1] > 1.8 * waits[0] and waits[2] == waits[3] < 7


def test_the_planted_bugs_break_their_rule_and_change_no_count_of_tokens():
    options = dict(batching="continuous:8", chunking="budget:64")
    healthy = run(nb07.aligned_workload(), Priced(**PRICES), check=True, **options)
    broken = broken_scheduling.run(nb07.aligned_workload(), Priced(**PRICES), "07.4", **options)
    assert nb07.silent_ends(healthy.trace) == [] != nb07.silent_ends(broken.trace)
    assert healthy.output_tokens == broken.output_tokens and broken.steps > healthy.steps
    assert broken.recomputed_tokens == len(nb07.silent_ends(broken.trace))
    healthy = run(pressed_workload(), Priced(**PRICES), check=True, **nb09.PRESSED)
    broken = broken_scheduling.run(pressed_workload(), Priced(**PRICES), "09.4", **nb09.PRESSED)
    assert nb09.overtaken(healthy.trace, 5.0) == [] and nb09.overtaken(broken.trace, 5.0) == [21]
    assert healthy.output_tokens == broken.output_tokens
    with pytest.raises(BadPolicy, match="there is no broken engine '04.4'; there are 07.4, 09.4"):
        broken_scheduling.run(pressed_workload(), Priced(), "04.4")


def test_the_exact_fit_bug_leaves_real_tokens_right():
    model = load_model("tiny")
    work = fixed_workload([tuple(range(5, 5 + n)) for n in (16, 40, 32, 7)], [6] * 4)
    options = dict(batching="continuous:4", chunking="budget:16", clock="virtual")
    broken = broken_scheduling.run(work, model, "07.4", **options)
    assert broken.tokens_sha256 == run(work, model, **options).tokens_sha256
    assert nb07.silent_ends(broken.trace)


def test_pictures_say_what_they_show(capsys):
    report = run(stall_workload(), Priced(**PRICES), batching="continuous:8", chunking="budget:64")
    plots_scheduling.staircase({"one": report}, request=1)
    plots_scheduling.step_fill(report, "Steps", budget=64)
    plots_scheduling.budget_curve({64: report, 128: report}, {64: 0.168, 128: 0.3})
    plots_scheduling.chunk_pairs(20_000, 5_000)
    plots_scheduling.chunk_seconds(report)
    for kernel in ("varlen", "padded"):
        cost = PrefillCost(kernel)
        plots_scheduling.splits({"fifo": place([600, 200, 600, 200], 2, "fifo", cost)}, kernel)
    plots_scheduling.orders([{"order": "fcfs", "mean": 1.0, "worst": 2.0}], "mean", "worst")
    plots_scheduling.in_time_curves({"fcfs": {1.0: 0.9, 2.0: 0.5}})
    shown = capsys.readouterr().out
    for said in (
        "longest gap is 0.17 s",
        "No step",
        "no step is above it",
        "the last 43.7%",
        "critical path",
        "fcfs 50%",
    ):
        assert said.lower() in shown.lower(), said
