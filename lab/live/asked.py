"""What a person asks of a session, checked in their own thread: run options, axes, and prompts sent by hand.

Everything is refused before any of it takes effect, with a sentence that names what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any

from lab import axes as axis_specs
from lab.errors import BadPolicy, BadRequest
from lab.numbers import whole
from lab.running import build_axes, build_engine

AXES = ("batching", "chunking", "ordering", "preemption", "attention", "delivery")
SPECS = AXES[:4]  # those that take policies
ENGINE = tuple(n for n, item in signature(build_engine).parameters.items() if item.kind is Parameter.KEYWORD_ONLY)
ELSEWHERE = {
    "lanes": "a live session keeps one step in flight at a time; lab.run takes `lanes`",
    "check": "a live session does not recount its blocks after every step; lab.run takes `check`",
}


def runs_of(runs: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All options of every run. Raises BadPolicy for what is no run, and for options that runs do not have."""
    if not isinstance(runs, Mapping):
        raise BadPolicy(f"runs is {runs!r}; it must be a dict from names to options")
    if not runs:
        raise BadPolicy("a session needs at least one run")
    for name, own in runs.items():
        if not isinstance(own, Mapping):
            raise BadPolicy(f"run {name!r} is {own!r}; it must be a dict of options")
        for option in [*common, *own]:
            if option in ELSEWHERE:
                raise BadPolicy(f"{option} is no option of a live session: {ELSEWHERE[option]}")
            if option not in ENGINE + AXES:
                raise BadPolicy(f"option {option!r} is not known; there are {', '.join(ENGINE + AXES)}")
    return {str(name): {**common, **own} for name, own in runs.items()}


def policy_of(options: Mapping[str, Any]) -> Any:
    """The batching policy that run options describe."""
    return build_axes(**{name: options[name] for name in AXES if name in options}).batching


def axes_of(asked: Mapping[str, Any], options: Mapping[str, Any], lane: Any = None) -> dict[str, Any]:
    """Axes as policies, checked together with the others: those of the lane that runs, else those of the options.

    Raises BadPolicy for a policy that is not known, and for a combination that makes no sense.
    """
    parsed = {axis: axis_specs.parse(axis, value) if axis in SPECS else value for axis, value in asked.items()}
    for axis in ("attention", "delivery"):
        if axis in parsed and not (isinstance(parsed[axis], str) and parsed[axis]):
            raise BadPolicy(f"{axis} {parsed[axis]!r} is not known; it is a word")
    own = {}
    if "batching" in parsed:  # it brings these, unless they are given too
        own = {"attention": parsed["batching"].attention, "delivery": parsed["batching"].delivery}
    if lane is not None and not lane.done:
        running = lane.engine.scheduler.axes
    else:
        running = build_axes(**{axis: options[axis] for axis in AXES if axis in options})
    if parsed:
        replace(running, **(own | parsed))
    return parsed


def prompt_of(prompt: Any, model: Any) -> Sequence[int] | int:
    """A chat message as ids; ids or a length as they are. Raises BadRequest where that is no prompt."""
    if isinstance(prompt, str):
        if not hasattr(model, "encode_chat"):
            name = getattr(model, "name", type(model).__name__)
            raise BadRequest(f"model {name} has no tokenizer for a text: send token ids or a length")
        prompt = model.encode_chat(prompt)
    if hasattr(prompt, "tolist"):  # an array
        prompt = prompt.tolist()
    if isinstance(prompt, bytes | bytearray) or not isinstance(prompt, int | list | tuple | range):
        raise BadRequest(f"a prompt of {type(prompt).__name__}; it must be a text, a list of token ids or a length")
    if isinstance(prompt, int):
        return whole(prompt, "a prompt length (in tokens) of", 1, BadRequest)
    whole(len(prompt), "a prompt length (in tokens) of", 1, BadRequest)
    size = vocabulary(model)
    for place, token in enumerate(prompt):
        whole(token, f"token {place} of the prompt is", 0, BadRequest)
        if size is not None and token >= size:
            raise BadRequest(f"token {place} of the prompt is {token}; the vocabulary has {size}, counted from 0")
    return list(prompt)


def vocabulary(model: Any) -> int | None:
    """How many token ids the model has, None where it has no tokens of its own."""
    config = getattr(model, "config", None) or getattr(getattr(model, "model", None), "config", None)
    return getattr(config, "vocab_size", None)
