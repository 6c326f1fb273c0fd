"""The widget of `lab.predict`: choices or a field, one button, one line that says what was noted."""

from __future__ import annotations

from html import escape

import ipywidgets

from lab.course.predictions import Prediction, with_unit


def build(prediction: Prediction) -> ipywidgets.VBox:
    """A box with the question. A guess is recorded on a click, and from then on it stands."""
    guess = prediction.guess
    if prediction.options:
        chosen = guess if guess in prediction.options else None
        field = ipywidgets.RadioButtons(options=prediction.options, value=chosen, layout={"width": "max-content"})
    else:
        text = "" if guess is None else f"{guess:g}" if isinstance(guess, float) else str(guess)
        field = ipywidgets.Text(value=text, placeholder="a number", layout={"width": "9em"})
    button = ipywidgets.Button(
        description="This is my prediction", tooltip="Note the guess", layout={"width": "max-content"}
    )
    said = ipywidgets.HTML(_noted(prediction) if guess is not None else "")

    def commit(_: ipywidgets.Button) -> None:
        try:
            prediction.commit(field.value)
        except ValueError:
            said.value = "Choose one first." if prediction.options else "A number, please: for example 3.5"
            return
        field.disabled = button.disabled = True
        said.value = _noted(prediction)

    button.on_click(commit)
    unit = ipywidgets.HTML(escape(prediction.unit))
    asked = ipywidgets.HTML(f"<b>{escape(prediction.question)}</b>")
    return ipywidgets.VBox([asked, ipywidgets.HBox([field, unit, button]), said])


def _noted(prediction: Prediction) -> str:
    assert prediction.guess is not None
    guess = escape(with_unit(prediction.guess, prediction.unit))
    return f"Noted: {guess}. Run on and see, or run this cell again to change it."
