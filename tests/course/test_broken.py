"""The engines of the break-it exercises: broken in one way, healthy in all others."""

import json

import pytest

import lab
from lab.course import broken
from lab.course.joining import JoiningRule
from lab.course.orca import normalised_latency, orca_workload, rate_within
from lab.course.sizes import quick
from lab.errors import BadPolicy
from lab.workload import fixed_workload
from tests.oracles import HashModel

PROMPTS = [tuple(range(100 * i, 100 * i + length)) for i, length in enumerate((12, 30, 7, 16, 21, 9))]
WORK = fixed_workload(PROMPTS, [9, 20, 33, 4, 16, 12], [0.0, 0.0, 0.1, 0.1, 0.3, 0.4])


def tokens(report):
    return [report.times[i].output for i in sorted(report.times)]


def healthy(engine):
    pass


def test_without_a_plant_it_is_lab_run():
    ours = broken.run_planted(WORK, lab.Priced(), healthy, batching="continuous:3")
    assert rounded(ours) == rounded(lab.run(WORK, lab.Priced(), batching="continuous:3"))


def rounded(report) -> dict:
    """The report with times to nine digits: `lab.run` takes stretches of steps at once, a broken engine never."""
    return json.loads(json.dumps(report.to_dict()), parse_float=lambda text: float(f"{float(text):.9g}"))


def test_an_unknown_bug_is_named():
    with pytest.raises(BadPolicy, match="09.9"):
        broken.run(WORK, lab.Priced(), "09.9")


@pytest.mark.parametrize("plant", [broken.without_cache, broken.cache_lost_with_each_block, broken.latched_full])
def test_tokens_stay_right(plant):
    right = broken.run_planted(WORK, HashModel(), healthy, batching="continuous:3", chunking="whole")
    wrong = broken.run_planted(WORK, HashModel(), plant, batching="continuous:3", chunking="whole")
    assert tokens(right) == tokens(wrong)


def test_without_a_cache_every_step_computes_everything():
    bare = broken.run_planted(fixed_workload([43], [48]), lab.Priced(), broken.without_cache, chunking="whole")
    assert bare.computed_tokens == sum(43 + done for done in range(48))
    assert [step.computed for step in bare.trace] == list(range(43, 91))


def test_a_lost_cache_is_recomputed_once_per_block():
    report = broken.run(fixed_workload([43], [48]), lab.Priced(), "01.4", batching="continuous:1")
    assert [step.computed for step in report.trace if step.computed > 1] == [43, 49, 65, 81]
    assert report.recomputed_tokens == 48 + 64 + 80 and report.preemptions == 0


def test_one_token_too_many_for_everybody():
    report = broken.run(WORK, lab.Priced(), "00.3", batching="continuous:3", blocks=64)
    assert [len(report.times[i].tokens) for i in range(6)] == [spec.sampling.max_tokens + 1 for spec in WORK.specs]


def test_a_latched_flag_drains_the_batch():
    report = broken.run(WORK, lab.Priced(), "04.4", batching="continuous:3")
    admitted = [step for step in report.trace if any(event.kind == "admitted" for event in step.events)]
    assert all(len(step.rows) <= 3 for step in report.trace)
    assert report.steps > lab.run(WORK, lab.Priced(), batching="continuous:3").steps
    assert len(admitted) < len(WORK)


def test_a_joining_rule_can_be_continuous_batching():
    mine = JoiningRule(lambda waiting, running, most: max(0, min(waiting, most - running)), 3)
    theirs = lab.run(WORK, lab.Priced(), batching="continuous:3")
    assert [len(step.rows) for step in lab.run(WORK, lab.Priced(), batching=mine).trace] == [
        len(step.rows) for step in theirs.trace
    ]


def test_orca_traffic_and_measure():
    work = orca_workload(200, seed=1)
    prompts, outputs = [s.prompt for s in work.specs], [s.sampling.max_tokens for s in work.specs]
    assert min(prompts) >= 32 and max(prompts) <= 512 and min(outputs) >= 1 and max(outputs) <= 128
    one = lab.run(fixed_workload([10], [4]), lab.Priced(step=1.0, token=0.0))
    assert normalised_latency(one) == pytest.approx(1.0)
    assert rate_within((1, 2, 3), (0.1, 0.2, 0.3), 0.2) == 2
    assert rate_within((1, 2), (0.5, 0.6), 0.2) is None


def test_quick_follows_the_environment(monkeypatch):
    for value, want in (("", 24), ("0", 24), ("1", 8)):
        monkeypatch.setenv("LAB_QUICK", value)
        assert quick(24, 8) == want
