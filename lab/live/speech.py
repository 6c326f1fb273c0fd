"""The answer that is being written: one request's text at a time, for models that have a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.live.lane import Lane
from lab.live.story import SENT_IDS
from lab.workload import Workload


class Speech:
    """Follows one request until it ends, then the next; or the one a person chose. Any thread."""

    def __init__(self, work: Workload, model: Any):
        self.work = work
        tokenizer = getattr(model, "tokenizer", None) or getattr(getattr(model, "model", None), "tokenizer", None)
        self._decode = getattr(tokenizer, "decode", None)
        self._chosen: tuple[int, int] | None = None
        self._shown: tuple[int, int] | None = None

    def follow(self, lane: int, request: int) -> None:
        """Show this request from now on."""
        self._chosen = (lane, request)

    def forget(self) -> None:
        """A new run: nothing is chosen."""
        self._chosen = self._shown = None

    def wire(self, lanes: Sequence[Lane]) -> dict[str, Any] | None:
        """{"lane", "request", "prompt", "text"} of the request to show, None when there is none."""
        place = self._chosen or self._next(lanes)
        if place is None or place[0] >= len(lanes):
            return None
        self._shown = place
        request = lanes[place[0]].engine.requests.get(place[1])
        if request is None:
            return None
        text = "" if self._decode is None else self._decode(list(request.output))
        return {"lane": place[0], "request": place[1], "prompt": self._prompt(place[1]), "text": text}

    def _next(self, lanes: Sequence[Lane]) -> tuple[int, int] | None:
        """Stay with a request that still runs; else the one that began last."""
        if not lanes:
            return None
        last = len(lanes) - 1
        running = list(lanes[last].engine.scheduler.running)
        if self._shown and self._shown[0] == last and any(request.id == self._shown[1] for request in running):
            return self._shown
        return (last, running[-1].id) if running else self._shown

    def _prompt(self, request: int) -> str:
        number = request % (1 << 32)  # samples of one prompt have ids beyond that
        if number >= SENT_IDS:
            return ""
        prompt = self.work.specs[number % len(self.work)].prompt
        return prompt if isinstance(prompt, str) else ""
