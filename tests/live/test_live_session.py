"""Sessions: same runs as lab.run, controls, errors, threads."""

from __future__ import annotations

import random
import threading
import time
from math import inf

import pytest
from oracles import HashModel

import lab
from lab.errors import BadPolicy, BadWorkload, EngineStopped
from lab.live.session import Session
from lab.plan import StepPlan
from lab.workload import fixed_workload

RUNS = {"static": dict(batching="static:4"), "continuous": dict(batching="continuous:4")}


def work(requests: int = 12, gap: float = 0.05, seed: int = 1):
    draw = random.Random(seed)
    prompts = [tuple(draw.randrange(1000) for _ in range(draw.randint(5, 40))) for _ in range(requests)]
    return fixed_workload(prompts, [draw.randint(4, 30) for _ in prompts], [gap * i for i in range(requests)])


@pytest.fixture
def session(request):
    """Makes sessions and leaves none behind."""
    made = []

    def make(load=None, model=None, runs=RUNS, **options):
        options.setdefault("name", request.node.name)
        made.append(Session(load or work(), model or HashModel(), runs, **options))
        return made[-1]

    yield make
    for one in made:
        one.halt()
    assert not live_threads()


def live_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lab-live")]


def until(condition, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def finished(session: Session) -> Session:
    session.start()
    assert session.wait(30)
    session.stop()
    return session


def test_nothing_runs_before_start(session):
    one = session(speed=inf)
    assert one.state == "ready" and one.lanes == [] and not live_threads()
    one.stop()  # harmless
    assert one.state == "ready"


def test_equals_lab_run_to_the_last_time_and_counter(session):
    one = finished(session(speed=inf))
    assert one.state == "finished"
    for name, options in RUNS.items():
        expected, report = lab.run(work(), HashModel(), **options), one.report(name)
        blocks = {"peak_blocks": None, "trace": None, "times": None}
        skip = {"axes", "kv_waste", *blocks}
        assert {k: v for k, v in report.to_dict().items() if k not in skip} == {
            k: v for k, v in expected.to_dict().items() if k not in skip
        }
        assert report.outputs == expected.outputs


def test_speed_changes_no_time(session):
    paced = finished(session(speed=20.0)).report("continuous")
    instant = lab.run(work(), HashModel(), **RUNS["continuous"])
    assert [(s.start, s.end) for s in paced.trace] == [(s.start, s.end) for s in instant.trace]


def test_numbers_on_the_screen_are_those_of_the_report(session):
    one = finished(session(speed=inf))
    for lane in one.lanes:
        report, numbers = one.report(lane.name), lane.feed.numbers()
        assert numbers["output_tokens_per_s"] == pytest.approx(report.output_tokens_per_s)
        assert numbers["ttft_p50"] == pytest.approx(report.ttft_s.p50)
        assert numbers["ttft_p95"] == pytest.approx(report.ttft_s.p95)
        assert numbers["itl_p95"] == pytest.approx(report.itl_s.p95)
        assert numbers["utilisation"] == pytest.approx(report.utilisation)
        assert numbers["mean_batch"] == pytest.approx(report.mean_batch)
        assert (numbers["finished"], numbers["steps"]) == (report.finished, report.steps)
        assert lane.feed.work["padding"] + lane.feed.work["wasted"] == report.padded_tokens
        assert lane.feed.work["prefill"] + lane.feed.work["decode"] == report.computed_tokens


def test_comparison_says_same_tokens(session):
    comparison = finished(session(speed=inf)).comparison()
    assert [same.verdict for same in comparison.same.values()] == ["yes", "yes"]
    assert "same tokens" in comparison.summary()


def test_pause_stops_the_clock_and_resume_goes_on(session):
    one = session(speed=2.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 2)
    one.pause()
    until(lambda: one.state == "paused")
    before = (one.lanes[0].now(), one.lanes[0].feed.steps)
    time.sleep(0.15)
    assert (one.lanes[0].now(), one.lanes[0].feed.steps) == before
    one.set(speed=inf)
    one.resume()
    assert one.wait(20) and one.report("static").finished == 12


def test_steps_are_single_and_skip_the_waiting(session):
    one = session(work(gap=100.0), speed=1.0)  # a second request would come after 100 s
    for expected in (1, 2, 3):
        one.step()
        until(lambda expected=expected: one.lanes and one.lanes[0].feed.steps == expected and one.state == "paused")
    time.sleep(0.05)
    assert one.lanes[0].feed.steps == 3
    assert one.lanes[0].trace[0].start == pytest.approx(300.0)  # four requests make the first static batch


def test_measured_clock_leaves_pauses_out(session):
    one = session(model=HashModel(), clock="wall", runs={"only": dict(batching="continuous:4")})
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 1)
    one.pause()
    until(lambda: one.state == "paused")
    time.sleep(0.3)
    one.resume()
    assert one.wait(20)
    gaps = [b.start - a.end for a, b in zip(one.lanes[0].trace, list(one.lanes[0].trace)[1:], strict=False)]
    assert max(gaps) < 0.2


def test_errors_of_the_thread_are_kept_shown_and_raised_again(session):
    class Broken(HashModel):
        def runner(self, *sizes, **named):
            runner = super().runner(*sizes, **named)
            count = iter(range(3))

            class Failing:
                def run(self, plan: StepPlan):
                    if next(count, None) is None:
                        raise RuntimeError("the model fell over")
                    return runner.run(plan)

            return Failing()

    one = session(model=Broken(), speed=inf)
    one.start()
    until(lambda: one.state == "failed")
    assert "the model fell over" in one.news.snapshot()["note"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="fell over"):
            one.stop()
    assert one.report("static").steps == 3  # what happened before is still there


def test_stop_comes_in_the_middle_and_start_begins_anew(session):
    one = session(work(60), speed=1.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 3)
    began = time.monotonic()
    one.stop()
    assert time.monotonic() - began < 2 and one.state == "stopped" and not live_threads()
    one.set(speed=inf)
    assert finished(one).report("continuous").finished == 60


def test_live_changes_are_recorded_and_change_no_tokens(session):
    one = session(work(40), speed=4.0, runs={"only": dict(batching="continuous:8")})
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 3)
    one.set(max_batch=2)
    one.set(pace=5.0, speed=inf)
    one.set(ordering="fcfs", chunking="budget:7")
    assert one.wait(20)
    report = one.report("only")
    notes = [event.note for event in report.trace.events() if event.kind == "reconfigured"]
    assert "batching=continuous" in " ".join(notes) and any("chunking" in note for note in notes)
    assert [change["what"] for change in report.trace.meta["live"]] == ["max_batch", "pace"]
    late = [step.running for step in report.trace][-20:]
    assert max(late) <= 2
    expected = lab.run(work(40), HashModel(), batching="continuous:8")
    assert report.outputs == expected.outputs


def test_load_changes_the_gaps_from_now_on_and_is_replayed(session):
    one = session(work(30, gap=1.0), speed=40.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.arrived >= 4)
    one.set(pace=8.0)
    one.set(speed=inf)
    assert one.wait(30)
    arrivals = [[info.arrival_time for info in lane.trace.requests.values()] for lane in one.lanes]
    assert arrivals[0] == arrivals[1]
    gaps = [b - a for a, b in zip(arrivals[0], arrivals[0][1:], strict=False)]
    assert gaps[:3] == pytest.approx([1.0] * 3) and gaps[-5:] == pytest.approx([1 / 8] * 5)
    assert one.comparison().same["continuous"].verdict == "yes"


def test_a_prompt_sent_by_hand_is_sent_to_later_policies_too(session):
    one = session(work(30), speed=5.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 3)
    one.send([1, 2, 3, 4], max_tokens=5)
    one.send()  # the long one
    one.set(speed=inf)
    assert one.wait(30)
    for report in one.reports.values():
        assert report.finished == 32
        assert sorted(info.num_prompt for info in report.trace.requests.values())[-1] == 512
    assert one.comparison().same["continuous"].verdict == "yes"


def test_abort_ends_one_request(session):
    one = session(work(30), speed=5.0, runs={"only": dict(batching="continuous:4")})
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 1)
    one.abort(1)
    one.set(speed=inf)
    assert one.wait(20) and one.report("only").finished in (29, 30)


def test_endless_goes_on_with_fresh_gaps_until_its_seconds_are_over(session):
    load = lab.Workload("poisson", work(5).specs, rate=10.0)
    one = finished(session(load, endless=True, seconds=20.0, speed=inf))
    first, second = one.reports.values()
    assert first.requests == second.requests > 20 and first.finished == first.requests
    assert max(info.arrival_time for info in first.trace.requests.values()) <= 20.0
    assert first.outputs == second.outputs


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (dict(load=2.0), BadWorkload),
        (dict(pace=-1), BadWorkload),
        (dict(max_batch=0), BadPolicy),
        (dict(speed=0), BadPolicy),
        (dict(colour=3), BadPolicy),
        (dict(ordering="fcfs"), EngineStopped),
    ],
)
def test_wrong_settings_are_refused_at_once(session, values, error):
    with pytest.raises(error):
        session().set(**values)


def test_settings_before_start_hold_for_all_policies(session):
    one = session(work(24), speed=inf)
    one.set(max_batch=2)
    one = finished(one)
    assert all(max(len(step.rows) for step in lane.trace) == 2 for lane in one.lanes)


def test_send_without_a_run_says_so(session):
    with pytest.raises(EngineStopped, match="start the session"):
        session().send([1, 2])
    with pytest.raises(KeyError, match="none"):
        session(name="other").report("static")


def test_a_policy_that_never_starts_is_an_error_not_a_hang(session):
    class Never:
        name, attention, delivery = "never", "packed", "token"
        carries_finished = admits_together = False

        def admit(self, view):
            return lab.batching.protocol.Admission(0)

    import lab.batching.protocol

    one = session(speed=inf, runs={"never": dict(batching=Never())})
    one.start()
    until(lambda: one.state == "failed")
    with pytest.raises(BadPolicy, match="never starts"):
        one.stop()


def test_a_changed_load_is_seen_while_a_long_step_is_under_way(session):
    class Slow(HashModel):
        def runner(self, *sizes, **named):
            runner = super().runner(*sizes, **named)

            class Sleeping:
                def run(self, plan: StepPlan):
                    time.sleep(0.6)
                    return runner.run(plan)

            return Sleeping()

    one = session(work(30, gap=10.0), Slow(), clock="wall", runs={"only": dict(batching="continuous:4")})
    one.warm_up = False
    one.start()
    until(lambda: one.lanes and one.lanes[0].now() > 0.05)
    one.set(pace=8.0)
    one.set(pace=79.0)
    until(lambda: one.lanes[0].feed.arrived > 1, seconds=1.0)
    assert one.lanes[0].feed.steps == 0  # the first step has not ended yet


def test_a_wrong_policy_is_refused_while_running(session):
    one = session(work(40), speed=1.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps > 1)
    with pytest.raises(BadPolicy, match="not known"):
        one.set(ordering="by magic")
    assert one.state == "running"
