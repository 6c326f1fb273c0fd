"""Guesses are kept and shown beside the result; without a guess, widgets or a writable folder nothing breaks."""

import json

import pytest

import lab
from lab.course import predictions
from lab.course.predictions import as_number, number, with_unit


@pytest.fixture(autouse=True)
def progress(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_PROGRESS_DIR", str(tmp_path / "progress"))
    monkeypatch.setattr(predictions, "_guesses", {})
    monkeypatch.setattr(predictions, "_units", {})
    return tmp_path / "progress" / "predictions.json"


def restart(monkeypatch):
    monkeypatch.setattr(predictions, "_guesses", {})


def test_a_number_is_recorded_and_revealed(progress):
    lab.predict("04.1", "How many times faster?", unit="×", guess=3)
    assert json.loads(progress.read_text())["04.1"] == {
        "question": "How many times faster?",
        "guess": 3.0,
        "unit": "×",
    }
    assert repr(lab.reveal("04.1", 4.123)) == (
        "Your prediction: 3×. Result: 4.12×. The result is 1.37 times your prediction."
    )


def test_a_guess_outlives_the_kernel(monkeypatch):
    lab.predict("04.1", "How many?", guess=3)
    restart(monkeypatch)
    assert "Your prediction: 3." in repr(lab.predict("04.1", "How many?"))
    assert "Your prediction: 3." in repr(lab.reveal("04.1", 5))
    lab.predict("04.2", "And now?", guess=1)
    restart(monkeypatch)
    assert predictions.guess_of("04.1") == 3


def test_an_option_is_recorded_and_revealed():
    question = lab.predict("04.2", "Which is faster?", ["static", "continuous"])
    question.commit("static")
    assert repr(lab.reveal("04.2", "static")).endswith("As you predicted.")
    assert repr(lab.reveal("04.2", "continuous", note="Look at p95.")).endswith("Not what you predicted.\nLook at p95.")


def test_no_guess_is_no_error():
    assert (
        repr(lab.predict("04.3", "How many?", unit="steps"))
        == "Predict (04.3): How many? [steps]\nNo prediction made yet."
    )
    assert repr(lab.reveal("04.3", 12)) == "No prediction made. Result: 12 steps."
    assert repr(lab.reveal("04.3", 12, unit="seconds")) == "No prediction made. Result: 12 seconds."
    assert repr(lab.reveal("04.3", "static", unit="")) == "No prediction made. Result: static."


@pytest.mark.parametrize("guess, options", [("both", ["a", "b"]), ("many", ()), (float("inf"), ()), ("", ())])
def test_guesses_that_are_none_are_refused(guess, options, progress):
    with pytest.raises(ValueError):
        lab.predict("04.4", "?", options, guess=guess)
    assert not progress.exists()


@pytest.mark.parametrize("broken", ["", "not json", "[1, 2]", '{"04.1": 3}', '{"04.1": {"other": 1}}'])
def test_a_damaged_file_is_as_good_as_none(progress, broken):
    progress.parent.mkdir()
    progress.write_text(broken)
    assert "No prediction" in repr(lab.reveal("04.1", 1))
    lab.predict("04.1", "?", guess=2)
    assert predictions._stored()["04.1"]["guess"] == 2


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAB_PROGRESS_DIR", str(tmp_path / "file" / "below"))
    lab.predict("04.1", "?", guess=2)
    assert "Your prediction: 2." in repr(lab.reveal("04.1", 3))


@pytest.mark.parametrize(
    "guess, actual, verdict",
    [
        (4, 4, "Exactly."),
        (4, 4.2, "Within 10 % of your prediction."),
        (-1, 5, ""),
        (0, 5, ""),
        (2, 1, "The result is 0.5 times"),
    ],
)
def test_verdicts(guess, actual, verdict):
    lab.predict("04.1", "?", guess=guess)
    assert verdict in repr(lab.reveal("04.1", actual))


def test_html_twin_says_the_same_and_is_escaped():
    asked = lab.predict("04.1", "Is <b> faster?", ["<b>", "c"])
    assert "&lt;b&gt;" in asked._repr_html_() and "<b> faster" not in asked._repr_html_()
    assert "No prediction made. Result: &lt;b&gt;." in lab.reveal("04.1", "<b>")._repr_html_()


def test_numbers():
    assert [number(x) for x in (3.0, 0.25, 1234.5, 1e6, 0.001234, 12345678)] == [
        *("3", "0.25", "1,234", "1,000,000", "0.00123", "12,345,678")
    ]
    assert with_unit(3.0, "tokens/s") == "3 tokens/s" and with_unit("static", "") == "static"
    assert as_number(" 3,5 ") == 3.5 and as_number("1e3") == 1000 and as_number("three") is None


def test_the_widget_records_on_a_click_only():
    from lab.course.predict_widget import build

    question = lab.predict("04.1", "How many?", unit="steps")
    asked, row, said = build(question).children
    field, unit, button = row.children
    assert (field.value, unit.value, said.value) == ("", "steps", "")
    field.value = "a lot"
    button.click()
    assert "A number, please" in said.value and question.guess is None
    field.value = "12"
    assert question.guess is None
    button.click()
    assert question.guess == 12 and field.disabled and button.disabled and "Noted: 12 steps." in said.value


def test_the_widget_with_options_starts_unanswered_and_later_with_the_old_guess():
    from lab.course.predict_widget import build

    question = lab.predict("04.1", "Which?", ["a", "b"])
    field, _, button = build(question).children[1].children
    button.click()
    assert field.value is None and question.guess is None
    field.value = "b"
    button.click()
    assert question.guess == "b"
    again = build(lab.predict("04.1", "Which?", ["a", "b"])).children[1].children[0]
    assert again.value == "b" and not again.disabled


def test_bundle_without_widgets(monkeypatch):
    assert set(lab.predict("04.1", "?")._repr_mimebundle_()) == {"text/plain", "text/html"}
    monkeypatch.setattr(predictions, "has_widgets", lambda: True)
    bundle = lab.predict("04.1", "?")._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and bundle["text/plain"].startswith("Predict (04.1)")
    monkeypatch.undo()
    monkeypatch.setenv("LAB_NO_WIDGETS", "1")
    assert not predictions.has_widgets()
