"""What a person asks for is checked at once, in their own thread, and changes nothing when it is refused."""

from __future__ import annotations

import threading
from math import inf, nan

import pytest
from oracles import HashModel
from test_live_session import finished, session, until, work  # noqa: F401 (a fixture)

from lab.errors import BadPolicy, BadRequest, EngineStopped
from lab.live.session import Session
from lab.simulation.priced import Priced
from lab.workload import fixed_workload

WRONG_AXES = [
    dict(batching="nonsense"),
    dict(batching="static:0"),
    dict(delivery="zz"),
    dict(delivery=3),
    dict(attention=""),
    dict(ordering=[1]),
    dict(delivery="batch"),  # continuous batching has no end of a batch
]


class Held(HashModel):
    """Does not get ready before it is told to."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def runner(self, *sizes, **named):
        self.go.wait(10)
        return super().runner(*sizes, **named)


@pytest.mark.parametrize("axes", WRONG_AXES)
def test_wrong_axes_are_refused_whatever_the_session_does(session, axes):  # noqa: F811
    model = Held()
    one = session(work(40), model, runs={"only": dict(batching="continuous:4")}, speed=2.0)
    for prepare in (
        lambda: None,
        one.start,
        lambda: (model.go.set(), until(lambda: one.lanes and len(one.lanes[0].trace))),
    ):
        prepare()
        with pytest.raises(BadPolicy):
            one.set(pace=3, **axes)
        assert one.controls.load.value == 1.0 and "pace" not in one.controls.touched, "half of it was done"
    assert one.state == "running"
    one.set(speed=inf)
    assert one.wait(30) and one.state == "finished" and "live" not in one.lanes[0].trace.meta


def test_axes_asked_for_while_it_prepares_hold_from_the_first_step(session):  # noqa: F811
    model = Held()
    one = session(work(40), model, runs={"only": dict(batching="continuous:4")}, speed=inf)
    with pytest.raises(EngineStopped, match="start the session"):
        one.set(batching="static:2")
    one.start()
    assert not one.lanes
    one.set(batching="static:2")
    model.go.set()
    assert one.wait(30)
    one.stop()
    assert max(len(step.rows) for step in one.lanes[0].trace) == 2


BAD_PROMPTS = [
    ["a", "b"],
    {1: 2},
    1.5,
    [1.5],
    [-1],
    [True],
    [],
    0,
    -3,
    True,
    b"abc",
    object(),
    "a text without a tokenizer",
]


def test_what_is_no_prompt_is_refused_at_once_and_ends_nothing(session):  # noqa: F811
    one = session(work(40), speed=2.0, runs={"only": dict(batching="continuous:4")})
    for start in (False, True):
        if start:
            one.start()
            until(lambda: one.lanes and one.lanes[0].feed.steps)
        for prompt in BAD_PROMPTS:
            with pytest.raises(BadRequest):
                one.send(prompt)
    with pytest.raises(BadRequest):
        one.send([1], max_tokens=0)
    with pytest.raises(BadRequest):
        one.abort("1")
    one.send(10, max_tokens=3)  # as many ids of the workload's prompts
    one.send(range(5), max_tokens=3)
    one.set(speed=inf)
    assert one.wait(30) and one.state == "finished"
    assert one.report("only").finished == 42 and not one.report("only").refused
    assert (
        one.lanes[0].engine.requests[1_000_000].prompt == list(work(40).specs[0].prompt + work(40).specs[1].prompt)[:10]
    )


def test_a_token_outside_the_vocabulary_is_refused(session):  # noqa: F811
    class Small(HashModel):
        class config:
            vocab_size = 1000

    one = session(model=Small())
    with pytest.raises(BadRequest, match="1000; the vocabulary has 1000"):
        one.send([999, 1000])


def test_a_length_is_a_prompt_where_the_workload_has_only_lengths(session):  # noqa: F811
    one = session(fixed_workload([64] * 20, [20] * 20, [0.2 * i for i in range(20)]), Priced(), speed=2.0)
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps)
    one.send(10)
    one.set(speed=inf)
    assert one.wait(30)
    assert one.report("static").trace.requests[1_000_000].num_prompt == 10


def test_a_prompt_that_is_too_long_is_refused_with_a_sentence(session):  # noqa: F811
    one = session(work(40), speed=2.0, runs={"only": dict(batching="continuous:4")})
    one.start()
    until(lambda: one.lanes and one.lanes[0].feed.steps)
    one.send(5000)  # the context is 4,096
    until(lambda: one.news.said)
    assert "only refused the prompt sent by hand: request 1000000 needs" in one.news.said and "4096" in one.news.said
    assert one.news.said in repr(one.still())
    one.set(speed=inf)
    assert one.wait(30)
    assert one.report("only").finished == 40 and list(one.report("only").refused) == [1_000_000]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(speed="a"), "speed"),
        (dict(speed=None), "speed"),
        (dict(speed=nan), "speed"),
        (dict(speed=True), "speed"),
        (dict(slo=[1]), "slo"),
        (dict(slo={1: 1}), "SLO on 1"),
        (dict(colour=3), "colour"),
        (dict(lanes="split:2"), "one step in flight"),
        (dict(check=True), "lab.run takes `check`"),
        (dict(runs=["static"]), "runs is"),
        (dict(runs={}), "at least one"),
        (dict(runs={"a": "static:4"}), "dict of options"),
        (dict(runs={"a": dict(colour=3)}), "colour"),
        (dict(long_prompt_tokens=0), "long_prompt_tokens"),
        (dict(long_prompt_tokens=-3), "long_prompt_tokens"),
        (dict(long_prompt_tokens="a"), "long_prompt_tokens"),
    ],
)
def test_a_session_is_not_made_of_what_makes_no_sense(options, words):
    with pytest.raises((BadPolicy, BadRequest), match=words):
        Session(work(2), HashModel(), name="wrong", **options)


@pytest.mark.parametrize("speed", ["a", None, nan, 0, -1, True])
def test_a_speed_is_a_number(session, speed):  # noqa: F811
    with pytest.raises(BadPolicy, match="speed"):
        session().set(speed=speed)
