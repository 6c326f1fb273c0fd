"""Workloads: who asks what, and when. The same seed gives the same requests at every rate.

Arrivals are a Poisson process: gaps are exponential with mean 1/rate. Gaps are drawn once and divided by the
rate, so that a higher rate is the same story told faster.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lab.errors import BadWorkload
from lab.numbers import real, whole
from lab.request import Request, SamplingParams

LATEST = 1e12  # seconds; later ones a float tells apart by a tenth of a millisecond only
DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request before it meets a model. `prompt` is a chat message, a conversation, token ids, or only a length.

    Of a prompt without text `block_keys` say what it shares with others, one key per `key_size` tokens.
    """

    arrival: float  # in units of 1/rate for a workload with a rate or a load, else in seconds
    prompt: str | tuple[Message, ...] | tuple[int, ...] | int
    sampling: SamplingParams
    priority: int = 0
    deadline: float | None = None  # seconds after arrival by which the first token is wanted
    block_keys: tuple[int, ...] = ()
    key_size: int = 512

    def tokens(self, model: Any) -> Sequence[int] | None:
        """The prompt's token ids, text through the model's chat template; None for a prompt without text."""
        if isinstance(self.prompt, int):
            return None
        if isinstance(self.prompt, str):
            return model.encode_chat(self.prompt)
        if self.prompt and isinstance(self.prompt[0], Message):
            return model.encode_chat([{"role": turn.role, "content": turn.content} for turn in self.prompt])
        return self.prompt


@dataclass(frozen=True, slots=True, repr=False)
class Workload:
    """Specs plus how fast they come: `rate` in requests/s, or `load` as a multiple of measured capacity."""

    name: str
    specs: tuple[RequestSpec, ...]
    rate: float | None = None
    load: float | None = None

    def __repr__(self) -> str:
        pace = f", {self.rate:g} requests/s" if self.rate else f", {self.load:g} x capacity" if self.load else ""
        return f"<Workload {self.name}: {len(self.specs)} requests{pace}>"

    def __post_init__(self) -> None:
        for field, value in (("rate", self.rate), ("load", self.load)):
            if value is not None and real(value, f"{field} is", error=BadWorkload) == 0:
                raise BadWorkload(f"{field} is 0; it must be above 0")
        if not self.specs:
            raise BadWorkload(f"workload {self.name!r} has no requests")

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def timed(self) -> bool:
        """True where arrivals are seconds, as in a trace, and not units of 1/rate."""
        return self.rate is None and self.load is None

    def at_rate(self, rate: float) -> Workload:
        """The same requests in the same order at another rate (requests/s); a trace is told faster or slower."""
        return replace(self._in_units(), rate=rate, load=None)

    def at_load(self, load: float) -> Workload:
        """The same requests at a rate of `load` × the capacity measured on this machine."""
        return replace(self._in_units(), rate=None, load=load)

    def _in_units(self) -> Workload:
        """Arrivals of a timed workload in units of its mean gap; nothing to do if all arrive at once."""
        if not self.timed:
            return self
        times = [spec.arrival for spec in self.specs]
        unit = (max(times) - min(times)) / max(1, len(times) - 1)
        if unit == 0:
            return self
        return replace(self, specs=tuple(replace(spec, arrival=spec.arrival / unit) for spec in self.specs))

    def requests(self, model: Any) -> list[Request]:
        """Fresh requests for one run; chat prompts go through the model's template. Ids are 0, 1, …"""
        scale = 1.0 / self.rate if self.rate else 1.0
        made = []
        for index, spec in enumerate(self.specs):
            arrival = spec.arrival * scale
            if self.rate and not arrival <= LATEST:
                raise BadWorkload(f"rate is {self.rate}: request {index} would come after {arrival:.3g} s; too low")
            made.append(
                Request(
                    index,
                    spec.tokens(model),
                    spec.sampling,
                    arrival,
                    None if spec.deadline is None else arrival + spec.deadline,
                    spec.priority,
                    num_prompt=spec.prompt if isinstance(spec.prompt, int) else 0,
                    block_keys=spec.block_keys,
                    key_size=spec.key_size,
                )
            )
        return made


@cache
def chat_prompts() -> tuple[tuple[str, int], ...]:
    """Chat prompts of our own, with the output tokens for which greedy decoding of the default model is clear-cut.

    "Clear-cut": the two largest logits are at least 0.01 apart at every one of those positions, so that kernels
    which round differently still choose the same token.
    """
    entries = json.loads((DATA / "prompts.json").read_text(encoding="utf-8"))["prompts"]
    return tuple((entry["text"], entry["clear_tokens"]) for entry in entries)


def arrival_rate(requests: int, rate: float | None, load: float | None) -> float | None:
    """The rate of a workload: as given, or 4 requests/s where neither rate nor load is. Raises BadWorkload for both."""
    whole(requests, "a workload's number of requests of", 1, BadWorkload)
    if rate is not None and load is not None:
        raise BadWorkload(f"give rate ({rate}) or load ({load}), not both")
    return 4.0 if rate is None and load is None else rate


def chat_workload(
    requests: int = 32,
    rate: float | None = None,
    seed: int = 0,
    load: float | None = None,
    max_tokens: int | None = None,
    temperature: float = 0.0,
) -> Workload:
    """Chat questions of mixed length, answers of mixed length (8 to 96 tokens, median about 32), Poisson arrivals.

    Give `rate` (requests/s) or `load` (× the capacity measured on this machine); with neither, 4 requests/s.
    `max_tokens` makes all answers equally long at most.
    """
    rate = arrival_rate(requests, rate, load)
    draw = random.Random(seed)
    pool = list(chat_prompts())
    deck: list[tuple[str, int]] = []
    now, specs = 0.0, []
    for _ in range(requests):
        if not deck:
            deck = draw.sample(pool, len(pool))
        text, clear = deck.pop()
        length = min(96, max(8, round(draw.lognormvariate(3.5, 0.7))))
        limit = min(length, clear) if max_tokens is None else max_tokens
        sampling = SamplingParams(max_tokens=limit, temperature=temperature, seed=seed)
        specs.append(RequestSpec(now, text, sampling))
        now += draw.expovariate(1.0)
    return Workload(f"chat-{requests}-seed{seed}", tuple(specs), rate, load)


def fixed_workload(
    prompts: Sequence[tuple[int, ...] | int | str],
    outputs: Sequence[int],
    arrivals: Sequence[float] | None = None,
    ignore_eos: bool = True,
) -> Workload:
    """Exactly these prompts (ids, lengths or chat texts), output lengths and arrival times in seconds."""
    arrivals = [0.0] * len(prompts) if arrivals is None else arrivals
    if not len(prompts) == len(outputs) == len(arrivals):
        raise BadWorkload(f"{len(prompts)} prompts, {len(outputs)} output lengths and {len(arrivals)} arrivals")
    specs = tuple(
        RequestSpec(arrival, prompt, SamplingParams(max_tokens=length, ignore_eos=ignore_eos))
        for arrival, prompt, length in zip(arrivals, prompts, outputs, strict=True)
    )
    return Workload(f"fixed-{len(specs)}", specs)
