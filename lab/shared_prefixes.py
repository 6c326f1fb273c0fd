"""Workloads whose prompts begin alike, with real text: conversations, few-shot tasks, trees, system prompts.

    multi-turn      a turn repeats its whole conversation; it comes after a pause for thought
    few-shot        an instruction and solved examples, then one new case
    tree            facts, what was asked so far, the next question: paths of trees, in random order
    system-prompt   a long system message, then one short question

Answers given in earlier turns are written out in data/dialogues.json and not the model's, so that a prompt does
not depend on the run. No prompt is asked for more tokens than it has clear ones (see `workload.chat_prompts`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lab.errors import BadWorkload
from lab.numbers import real
from lab.request import SamplingParams
from lab.workload import DATA, Message, RequestSpec, Workload, arrival_rate, chat_workload

DIALOGUES = DATA / "dialogues.json"
SHORTEST, LONGEST = 4, 24  # output tokens at most; few, so that the prompts are what a run is about


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation up to where the model is to answer, and how many tokens of its answer are clear-cut."""

    messages: tuple[Message, ...]
    clear_tokens: int


def entries(dialogues: dict[str, Any]) -> Iterator[tuple[str, int, tuple[Message, ...], dict[str, Any]]]:
    """Every prompt in the file: kind, group, messages, and the object that holds its `clear_tokens`."""
    for group, conversation in enumerate(dialogues["conversations"]):
        past: tuple[Message, ...] = ()
        for turn in conversation["turns"]:
            past += (Message("user", turn["user"]),)
            yield "multi-turn", group, past, turn
            past += (Message("assistant", turn.get("assistant", "")),)
    for group, task in enumerate(dialogues["few_shot"]):
        opening = (Message("system", task["system"]), *_exchanges(task["shots"]))
        for question in task["questions"]:
            yield "few-shot", group, (*opening, Message("user", question["user"])), question
    for group, tree in enumerate(dialogues["trees"]):
        for branch in tree["branches"]:
            opening = (Message("system", tree["system"]), *_exchanges(branch["turns"]))
            for leaf in branch["leaves"]:
                yield "tree", group, (*opening, Message("user", leaf["user"])), leaf
    for group, setting in enumerate(dialogues["system_prompts"]):
        for question in setting["questions"]:
            messages = (Message("system", setting["system"]), Message("user", question["user"]))
            yield "system-prompt", group, messages, question


def _exchanges(pairs: Sequence[Sequence[str]]) -> Iterator[Message]:
    for asked, answered in pairs:
        yield Message("user", asked)
        yield Message("assistant", answered)


@cache
def prompts(kind: str) -> tuple[tuple[Prompt, ...], ...]:
    """Prompts of one kind in groups that share; turns in their order, leaves of a tree depth first."""
    groups: dict[int, list[Prompt]] = {}
    for found, group, messages, entry in entries(json.loads(DIALOGUES.read_text(encoding="utf-8"))):
        if found == kind:
            groups.setdefault(group, []).append(Prompt(messages, entry["clear_tokens"]))
    return tuple(tuple(group) for group in groups.values())


# -- workloads ----------------------------------------------------------------------------------------------
def multi_turn_workload(
    requests: int = 24,
    rate: float | None = None,
    seed: int = 0,
    load: float | None = None,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    think: float = 6.0,
) -> Workload:
    """Conversations that begin at random times; the next turn comes `think` mean gaps (±50 %) after the last.

    Turns come whether or not the answer before them is ready. Further arguments as for `chat_workload`.
    """
    rate = arrival_rate(requests, rate, load)
    real(think, "think (in mean gaps) is", error=BadWorkload)
    draw = random.Random(seed)
    pool = prompts("multi-turn")
    turns = sum(map(len, pool)) / len(pool)
    start, arrivals, deck = 0.0, [], []
    for _ in range(requests):  # more than enough: the first `requests` turns are kept
        deck = deck or draw.sample(pool, len(pool))
        now = start
        for prompt in deck.pop():
            arrivals.append((now, len(arrivals), prompt))
            now += think * draw.uniform(0.5, 1.5)
        start += draw.expovariate(1.0) * turns
    arrivals = sorted(arrivals)[:requests]
    stretch = (requests - 1) / arrivals[-1][0] if arrivals[-1][0] else 1.0
    timed = [(arrival * stretch, prompt) for arrival, _, prompt in arrivals]
    return _workload("multi-turn", timed, rate, load, seed, max_tokens, temperature, draw)


def few_shot_workload(
    requests: int = 24,
    rate: float | None = None,
    seed: int = 0,
    load: float | None = None,
    max_tokens: int | None = None,
    temperature: float = 0.0,
) -> Workload:
    """Cases of four tasks in random order, each behind its task's instruction and examples."""
    return _dealt("few-shot", requests, rate, seed, load, max_tokens, temperature)


def tree_workload(
    requests: int = 24,
    rate: float | None = None,
    seed: int = 0,
    load: float | None = None,
    max_tokens: int | None = None,
    temperature: float = 0.0,
) -> Workload:
    """Paths from root to leaf of three trees, in random order: the worst that first come, first served can meet."""
    return _dealt("tree", requests, rate, seed, load, max_tokens, temperature)


def system_prompt_workload(
    requests: int = 24,
    rate: float | None = None,
    seed: int = 0,
    load: float | None = None,
    max_tokens: int | None = None,
    temperature: float = 0.0,
) -> Workload:
    """Short questions to three assistants in random order, each behind the assistant's long system prompt."""
    return _dealt("system-prompt", requests, rate, seed, load, max_tokens, temperature)


#: Every workload with text by its command line name, all with the arguments of `chat_workload`.
WORKLOADS: dict[str, Callable[..., Workload]] = {
    "chat": chat_workload,
    "multi-turn": multi_turn_workload,
    "few-shot": few_shot_workload,
    "tree": tree_workload,
    "system-prompt": system_prompt_workload,
}


# -- inside -------------------------------------------------------------------------------------------------
def _dealt(
    kind: str,
    requests: int,
    rate: float | None,
    seed: int,
    load: float | None,
    max_tokens: int | None,
    temperature: float,
) -> Workload:
    """Prompts dealt from a shuffled deck, every one before one comes again; Poisson arrivals."""
    rate = arrival_rate(requests, rate, load)
    draw = random.Random(seed)
    pool = [prompt for group in prompts(kind) for prompt in group]
    deck: list[Prompt] = []
    now, timed = 0.0, []
    for _ in range(requests):
        deck = deck or draw.sample(pool, len(pool))
        timed.append((now, deck.pop()))
        now += draw.expovariate(1.0)
    return _workload(kind, timed, rate, load, seed, max_tokens, temperature, draw)


def _workload(
    kind: str,
    timed: Sequence[tuple[float, Prompt]],
    rate: float | None,
    load: float | None,
    seed: int,
    max_tokens: int | None,
    temperature: float,
    draw: random.Random,
) -> Workload:
    """Answers of at most 8 to 24 tokens, fewer where they are not clear-cut that far; or of `max_tokens` if given."""
    specs = []
    for arrival, prompt in timed:
        length = draw.randint(2 * SHORTEST, LONGEST)
        limit = min(length, prompt.clear_tokens) if max_tokens is None else max_tokens
        specs.append(RequestSpec(arrival, prompt.messages, SamplingParams(limit, temperature, seed=seed)))
    return Workload(f"{kind}-{len(specs)}-seed{seed}", tuple(specs), rate, load)
