"""No session outlives its cell, and none computes while something is measured."""

from __future__ import annotations

import gc
import threading
import time

import pytest
from oracles import HashModel
from test_live_session import live_threads, until, work

from lab.errors import EngineStopped
from lab.live.registry import paused_sessions, sessions, stop_all
from lab.live.session import Session


@pytest.fixture
def make():
    made = []

    def one(name: str, requests: int = 400, **options):
        made.append(Session(work(requests), HashModel(), name=name, speed=1.0, batching="continuous:4", **options))
        return made[-1]

    yield one
    for session in made:
        session.halt()
    assert not live_threads()


def running(session: Session) -> Session:
    session.start()
    until(lambda: session.lanes and session.lanes[-1].feed.steps > 1)
    return session


def test_the_next_session_of_a_name_stops_the_one_before(make):
    first = running(make("same"))
    second = make("same")
    assert first.state == "replaced" and not live_threads()
    with pytest.raises(EngineStopped, match="replaced"):
        first.start()
    assert running(second).state == "running"


def test_starting_one_pauses_the_others(make):
    first, second = running(make("a")), make("b")
    running(second)
    until(lambda: first.state == "paused")
    assert "another session" in first.news.snapshot()["note"]


def test_measurements_pause_running_sessions_and_let_them_go_on(make):
    session = running(make("measured"))
    with paused_sessions():
        steps = session.lanes[0].feed.steps
        with paused_sessions():
            time.sleep(0.05)
        time.sleep(0.1)
        assert session.state == "paused" and session.lanes[0].feed.steps == steps
    until(lambda: session.lanes[0].feed.steps > steps)
    assert session.state == "running"


def test_a_session_that_a_person_paused_stays_paused(make):
    session = running(make("by hand"))
    session.pause()
    until(lambda: session.state == "paused")
    with paused_sessions():
        pass
    time.sleep(0.05)
    assert session.state == "paused"


def test_a_session_started_during_a_measurement_waits(make):
    session = make("late")
    with paused_sessions():
        session.start()
        time.sleep(0.1)
        assert not session.lanes
    until(lambda: session.lanes)


def test_a_thread_of_its_own_measurement_does_not_wait_for_itself(make):
    session = make("own", warm_up=True)
    session.measured = True  # warms up with lab.run, which may pause sessions
    began = time.monotonic()
    with paused_sessions(timeout=0.2):
        pass
    running(session)
    assert time.monotonic() - began < 10


def test_stop_all_leaves_no_thread(make):
    running(make("x"))
    stop_all()
    assert not live_threads()


def test_forgotten_sessions_are_collected(make):
    Session(work(2), HashModel(), name="forgotten", batching="continuous:4")
    gc.collect()
    assert "forgotten" not in [session.key for session in sessions()]


def test_stop_from_many_threads_is_one_stop(make):
    session = running(make("crowd"))
    stoppers = [threading.Thread(target=session.stop) for _ in range(5)]
    for thread in stoppers:
        thread.start()
    for thread in stoppers:
        thread.join(5)
    assert session.state == "stopped"
