from __future__ import annotations

import math

import pytest

import lab
from lab.errors import BadWorkload, LabError
from lab.request import SamplingParams
from lab.simulation.priced import Priced
from lab.workload import RequestSpec, Workload, chat_prompts, chat_workload, fixed_workload

SPEC = RequestSpec(2.0, 3, SamplingParams(max_tokens=2), priority=4, deadline=0.5)


@pytest.fixture(autouse=True)
def prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chat prompts of the test's own, so that the shipped ones may change."""
    pool = tuple((f"question number {index} " + "word " * index, 20 + index) for index in range(30))
    monkeypatch.setattr("lab.workload.chat_prompts", lambda: pool)


@pytest.mark.parametrize("field", ["rate", "load"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_rate_and_load_are_positive_numbers(field: str, value: float) -> None:
    with pytest.raises(BadWorkload, match=f"{field} is {value}"):
        Workload("w", (SPEC,), **{field: value})


@pytest.mark.parametrize("make", [lambda: Workload("w", ()), lambda: fixed_workload([], [])])
def test_a_workload_has_requests(make) -> None:
    with pytest.raises(BadWorkload, match="no requests"):
        make()


@pytest.mark.parametrize("count", [0, -4])
def test_chat_workload_wants_requests(count: int) -> None:
    with pytest.raises(BadWorkload, match=f"requests of {count};"):
        chat_workload(count)


def test_rate_or_load_not_both() -> None:
    with pytest.raises(BadWorkload, match=r"rate \(2.0\) or load \(1.5\)"):
        chat_workload(4, rate=2.0, load=1.5)


def test_lists_of_different_length() -> None:
    with pytest.raises(BadWorkload, match="2 prompts, 1 output lengths and 2 arrivals"):
        fixed_workload([3, 4], [1])
    with pytest.raises(BadWorkload, match="1 prompts, 1 output lengths and 3 arrivals"):
        fixed_workload([3], [1], [0.0, 1.0, 2.0])


@pytest.mark.parametrize("value", [0, -2])
def test_numbers_inside_a_workload_are_checked_when_it_is_made_or_used(value: int) -> None:
    with pytest.raises(LabError, match=str(value)):
        fixed_workload([3], [value])
    with pytest.raises(LabError, match=str(value)):
        fixed_workload([value], [3]).requests(Priced())
    with pytest.raises(LabError, match=str(value)):
        chat_workload(2, max_tokens=value)


@pytest.mark.parametrize("arguments", [dict(requests=2.5), dict(requests="4"), dict(rate="fast")], ids=str)
def test_chat_workload_of_the_wrong_kind(arguments: dict) -> None:
    with pytest.raises(BadWorkload):
        chat_workload(**arguments)


def arrivals(work: Workload) -> list[float]:
    return [each.arrival_time for each in work.requests(Priced())]


def test_the_same_seed_gives_the_same_requests_at_every_rate() -> None:
    slow, fast = chat_workload(20, rate=2.0, seed=3), chat_workload(20, rate=8.0, seed=3)
    assert slow.specs == fast.specs
    assert [4 * time for time in arrivals(fast)] == pytest.approx(arrivals(slow))
    assert slow.at_rate(8.0) == fast
    assert chat_workload(20, rate=2.0, seed=4).specs != slow.specs


def test_a_longer_workload_begins_like_a_shorter_one() -> None:
    assert chat_workload(40, seed=1).specs[:10] == chat_workload(10, seed=1).specs


def test_arrivals_come_at_the_rate() -> None:
    times = arrivals(chat_workload(2000, rate=5.0, seed=0))
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    assert times[0] == 0.0 and times == sorted(times)
    assert mean == pytest.approx(1 / 5, rel=0.1)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation == pytest.approx(mean, rel=0.1)  # exponential


def test_answers_are_of_mixed_length_and_clear_cut() -> None:
    work = chat_workload(60, seed=0)
    clear = dict(lab.workload.chat_prompts())
    limits = [spec.sampling.max_tokens for spec in work.specs]
    assert all(1 <= spec.sampling.max_tokens <= clear[spec.prompt] for spec in work.specs)
    assert len(set(limits)) > 5
    assert {spec.sampling.max_tokens for spec in chat_workload(9, max_tokens=7).specs} == {7}


def test_every_prompt_is_used_before_one_comes_again() -> None:
    texts = [spec.prompt for spec in chat_workload(60, seed=2).specs]
    assert len(set(texts[:30])) == len(set(texts[30:])) == 30


def test_requests_are_fresh_each_time() -> None:
    work = fixed_workload([(1, 2, 3), 4], [2, 3], [0.0, 1.5])
    one, two = work.requests(Priced()), work.requests(Priced())
    assert [(r.id, r.num_prompt, r.arrival_time, r.sampling.max_tokens) for r in one] == [
        (0, 3, 0.0, 2),
        (1, 4, 1.5, 3),
    ]
    assert one[0].prompt == (1, 2, 3) and one[1].prompt is None
    assert one[0] is not two[0] and one[0].output is not two[0].output


def test_deadlines_count_from_the_arrival() -> None:
    (made,) = Workload("w", (SPEC,), rate=4.0).requests(Priced())
    assert (made.arrival_time, made.deadline, made.priority) == (0.5, 1.0, 4)
    (made,) = Workload("w", (SPEC,)).requests(Priced())
    assert (made.arrival_time, made.deadline) == (2.0, 2.5)


def test_chat_text_goes_through_the_models_template() -> None:
    class Model(Priced):
        def encode_chat(self, text: str) -> list[int]:
            return [1, *map(ord, text), 2]

    (made,) = fixed_workload(["hi"], [3]).requests(Model())
    assert made.prompt == [1, ord("h"), ord("i"), 2]


def test_load_is_a_multiple_of_measured_capacity() -> None:
    from lab.running import with_rate

    model = Priced(step=0.05)
    work = chat_workload(24, load=1.5, seed=1)
    capacity = lab.run(Workload("crowd", work.specs, rate=1e9), model, batching="continuous:16").requests_per_s
    assert with_rate(work, model).rate == pytest.approx(1.5 * capacity)
    assert with_rate(work.at_rate(3.0), model).rate == 3.0
    report = lab.run(work, model)
    assert report.trace.meta["rate"] == pytest.approx(1.5 * capacity)


def test_capacity_is_measured_anew_for_another_price() -> None:
    from lab.running import with_rate

    work = chat_workload(24, load=1.0, seed=2)
    slow, fast = with_rate(work, Priced(step=1.0)), with_rate(work, Priced(step=0.01))
    assert fast.rate > 2 * slow.rate


def test_shipped_prompts_can_be_read() -> None:
    path = lab.workload.DATA / "prompts.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    pool = chat_prompts()
    assert len(pool) >= 16 and all(text and clear >= 1 for text, clear in pool)


def test_an_object_at_the_end_of_a_cell_prints_a_line_not_its_contents() -> None:
    """A model's weights, a workload's texts and a trace's steps would fill pages."""
    model, work = lab.load_model("tiny"), chat_workload(3, rate=40.0, seed=0)
    trace = lab.run(work, model).trace
    simulated = lab.simulated("llama-3-8b", on="h100-sxm", tp=2)
    for shown, begins in (
        (model, "<Model tiny: 0.2 M parameters in 2 layers, float32 on cpu>"),
        (work, "<Workload chat-3-seed0: 3 requests, 40 requests/s>"),
        (trace, f"<RunTrace of tiny: {len(trace)} steps, 3 requests>"),
        (simulated, "<SimulatedModel llama-3-8b on h100-sxm: "),
    ):
        assert repr(shown).startswith(begins) and len(repr(shown)) < 100
