"""One answer, printed while it is computed: what a chat window does."""

from __future__ import annotations

from typing import Any

from lab.clock import Driver, WallClock
from lab.metrics import Report
from lab.request import Request, SamplingParams
from lab.running import build_engine


def stream(model: Any, question: str, max_tokens: int = 48, width: int = 96) -> Report:
    """Ask one question; print each token's text when its step ends, in lines of about `width`. Returns the report.

    A step of a few tokens is run and thrown away first, so that no kernel is prepared while the answer is timed.
    """
    _drive(model, Request(0, model.encode_chat("Hello"), SamplingParams(max_tokens=2)), lambda text: None)
    printer = _Printer(width)
    report = _drive(model, Request(0, model.encode_chat(question), SamplingParams(max_tokens=max_tokens)), printer)
    print(flush=True)
    return report


def _drive(model: Any, request: Request, say: Any) -> Report:
    engine = build_engine(model, [request], batching="continuous:1")
    engine.trace.meta |= {"clock": "wall", "measured": True}
    driver, said = Driver(engine, [request], WallClock()), ""
    while not driver.done:
        if driver.tick() is not None:
            text = model.decode(request.output)
            if not text.endswith("\ufffd"):  # half of a character: wait for the rest
                say(text[len(said) :])
                said = text
    return Report.from_trace(engine.flush())


class _Printer:
    """Prints pieces as they come and breaks lines at the first blank beyond `width`."""

    def __init__(self, width: int):
        self.width, self.column = width, 0

    def __call__(self, piece: str) -> None:
        if self.column + len(piece) > self.width and piece[:1].isspace():
            print()
            piece, self.column = piece.lstrip(" "), 0
        print(piece, end="", flush=True)
        self.column = len(piece.rpartition("\n")[2]) + (0 if "\n" in piece else self.column)
