"""`lab.check` tells right from wrong, grows its hints, and never raises."""

import itertools
import sys

import pytest

import lab
from lab.batching.protocol import Admission
from lab.course import checks
from lab.course.audit import NONSENSE, audit
from lab.course.checks import Exercise, Probe, all_exercises, check, exercise, when_done
from lab.course.comparing import same, shown
from lab.course.guard import guarded
from lab.workload import fixed_workload

IDS = sorted(all_exercises())


@pytest.mark.parametrize("id", IDS)
def test_solution_passes_and_wrong_answers_fail(id):
    assert audit(checks.find(id)) == []


def test_the_audit_is_content_with_a_good_check(blocks_exercise):
    assert audit(blocks_exercise) == []


def make(examine, **options) -> Exercise:
    defaults = dict(hints=("one", "two", "three"), solution=lambda: 1, wrong={})
    return exercise("98.1", "Made up", **(defaults | options))(examine)


def test_the_audit_finds_a_check_that_a_constant_satisfies(use):
    lax = make(lambda answer, probe: probe.true(True, "never said"))
    use(lax)
    problems = "\n".join(audit(lax))
    assert "0 wrong answers" in problems
    assert "'None' is passed" in problems


def test_the_audit_finds_a_solution_that_does_not_pass(use):
    strict = make(lambda answer, probe: probe.equal(answer, 2, "the answer"))
    use(strict)
    assert any("its solution does not pass" in problem for problem in audit(strict))


def test_a_check_that_states_nothing_passes_nobody(use):
    use(make(lambda answer, probe: probe.step("nothing follows")))
    assert check("98.1", 1).status == "failed"


def test_hints_grow_with_each_failed_try_and_step_hints_come_first(use):
    def examine(answer, probe):
        probe.step("it is two", "two, not three")
        probe.equal(answer, 2, "the answer")

    use(make(examine))
    hints = [check("98.1", wrong).hints for wrong in (1, 3, 4, 5, 6)]
    assert [len(shown_hints) for shown_hints in hints] == [1, 2, 3, 4, 4]
    assert hints[-1] == ("two, not three", "one", "two", "three")
    assert check("98.1", 2).passed


def test_open_answers_cost_no_try(use):
    use(make(lambda answer, probe: probe.equal(answer(), 2, "answer()")))

    def stub():
        raise NotImplementedError("exercise 98.1: your turn")

    assert [check("98.1", answer).status for answer in (..., stub, stub)] == ["open"] * 3
    assert check("98.1", lambda: 1).tries == 1


def test_the_first_failing_step_is_named_and_later_ones_are_not_run(blocks_exercise):
    result = check("98.2", lambda tokens, size: tokens // size + 1)
    assert result.steps == ("one token needs a block",)
    assert result.failing == "a full block is one block"
    assert result.message == "blocks_for(16, 16) should be 1, got 2"
    assert "→ hint 1: How many blocks hold exactly 16 tokens?" in repr(result)


@pytest.mark.parametrize("id", [None, 7, "", "4.1", "04.99", "77.1", "../04", object(), ["04.1"]])
def test_an_unknown_id_is_answered_not_raised(id):
    result = check(id, 1)
    assert result.status == "unknown" and not result
    assert "there is no exercise" in repr(result) and " at 0x" not in repr(result)


def test_a_near_id_is_suggested(monkeypatch):
    monkeypatch.setattr(checks, "all_exercises", lambda: {"04.1": None, "07.2": None})
    assert "Did you mean 04.1?" in repr(check("04.11", 1))
    monkeypatch.setattr(checks, "all_exercises", dict)
    assert "None is known" in repr(check("04.11", 1))


def test_a_broken_file_of_exercises_is_answered_not_raised(monkeypatch):
    def broken(module):
        raise SyntaxError("invalid syntax")

    monkeypatch.setattr(checks, "exercises", broken)
    assert "cannot be read: SyntaxError" in repr(check("04.1", 1))


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_never_raises_and_never_passes(name, blocks_exercise):
    result = check("98.2", NONSENSE[name])  # the audit above asks the same of every exercise
    assert not result.passed
    assert repr(result) and result._repr_html_()


def swallows_everything(*args):
    for _ in itertools.count():
        try:
            while True:
                pass
        except Exception:
            pass


def loops_in_a_generator(*args):
    return all(True for _ in iter(int, 1))


def loops_by_calling(*args):
    def nothing():
        pass

    while True:
        nothing()


@pytest.mark.parametrize("endless", [swallows_everything, loops_in_a_generator, loops_by_calling])
def test_an_endless_answer_is_stopped(endless, blocks_exercise):
    result = check("98.2", endless)
    assert "did not come to an end" in result.message


def test_an_endless_loop_on_one_line_is_stopped_by_the_timer():
    names: dict = {}
    exec("def forever():\n    while True: pass\n", names)  # no line event ever comes
    outcome = guarded(names["forever"], seconds=0.2)
    assert outcome.ran_away


def test_an_endless_policy_inside_the_engine_is_stopped(use):
    class Asks:
        name, attention, delivery, carries_finished, admits_together = "asks", "packed", "token", False, False

        def __init__(self, answer):
            self.answer = answer

        def admit(self, view):
            return Admission(self.answer(view), wake_at=view.now)  # "ask again at once", for ever

    def examine(answer, probe):
        lab.run(fixed_workload([4, 4], [2, 2], [0.0, 1.0]), lab.Priced(), batching=Asks(answer))
        probe.true(False, "never reached")

    use(make(examine))
    assert "never starts them" in check("98.1", lambda view: 0).message


def test_the_guard_gives_the_trace_function_back():
    seen = []

    def mine(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        guarded(lambda: seen.append(1))
        assert sys.gettrace() is mine
        guarded(lambda: 1 // 0)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
    assert seen == [1]


def test_an_interrupt_is_no_failed_try(blocks_exercise):
    def interrupted(*args):
        raise KeyboardInterrupt

    assert check("98.2", interrupted).status == "open"
    assert check("98.2", lambda tokens, size: 0).tries == 1


def test_the_learners_line_and_prints_are_shown(blocks_exercise):
    def divides(tokens, size):
        print("tokens", tokens)
        return tokens // (size - size)

    text = repr(check("98.2", divides))
    assert "ZeroDivisionError" in text and "return tokens // (size - size)" in text
    assert "your code printed: tokens 1" in text
    assert __file__ not in text


def test_html_is_escaped(blocks_exercise):
    result = check("98.2", lambda tokens, size: "<script>alert(1)</script>")
    assert "<script>" not in result._repr_html_() and "&lt;script&gt;" in result._repr_html_()


def test_public_name():
    assert lab.check is check
    assert lab.predict is lab.course.predict and lab.reveal is lab.course.reveal


def test_exercise_ids_are_checked():
    with pytest.raises(ValueError, match="04.1"):
        exercise("4-1", "x", hints=(), solution=int, wrong={})


def test_two_exercises_may_not_share_an_id(monkeypatch):
    import types

    twice = types.SimpleNamespace(a=make(lambda a, p: None), b=make(lambda a, p: None))
    monkeypatch.setattr(checks, "import_module", lambda name: twice)
    with pytest.raises(ValueError, match="have the id 98.1"):
        checks.exercises("nb98")


def test_when_done_speaks_only_of_open_exercises(capsys):
    with when_done("04.1"):
        raise NotImplementedError("exercise 04.1: your turn")
    assert capsys.readouterr().out == "○ This cell comes alive once exercise 04.1 is done.\n"
    with pytest.raises(ZeroDivisionError), when_done("04.1"):
        raise ZeroDivisionError


def test_probe_raises():
    probe = Probe()
    probe.raises(ValueError, lambda: int("x"), "int('x')")
    with pytest.raises(checks.StepFailed, match="should raise ValueError, got 3"):
        probe.raises(ValueError, lambda: 3, "three")
    with pytest.raises(checks.StepFailed):
        probe.true(1, "only True itself is true")


class Liar:
    def __eq__(self, other):
        return True


@pytest.mark.parametrize(
    "got, want, equal",
    [
        (3, 3, True),
        (3.0, 3, True),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        (0, None, False),
        ((1, 2), [1, 2], True),
        ([1, 2, 3], [1, 2], False),
        (range(3), [0, 1, 2], True),
        (iter([0, 1]), [0, 1], True),
        (itertools.count(), [0, 1], False),
        ("ab", ["a", "b"], False),
        ({1: [2]}, {1: (2,)}, True),
        ({1: 2, 3: 4}, {1: 2}, False),
        ({1, 2}, {2, 1}, True),
        ([2, 1], {2, 1}, False),
        (float("nan"), 1.0, False),
        (Liar(), 1, False),
        (Liar(), "a", False),
        (Liar(), [], False),
        (Liar(), None, False),
        (Liar(), {}, False),
        ([Liar()], [1], False),
    ],
)
def test_same(got, want, equal):
    assert same(got, want) is equal


def test_same_with_numpy_and_tolerance():
    numpy = pytest.importorskip("numpy")
    assert same(numpy.int64(3), 3) and same(numpy.array([1, 2]), [1, 2]) and not same(numpy.array([1, 2]), 1)
    assert same(1.0000001, 1.0, 1e-6) and not same(1.1, 1.0, 1e-6) and same(1e-9, 0.0, 1e-6)


def test_shown_is_short_and_has_no_address():
    assert len(shown(list(range(1000)))) < 80
    assert "0x" not in shown(object()) and "0x" not in shown(lambda: 1) and "0x" not in shown([object])
    assert shown(NONSENSE["without a repr"]).startswith("a _Unshowable")
