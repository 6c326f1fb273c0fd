"""Workloads with shared beginnings: structure, arrivals, and what a prefix cache finds in them."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from itertools import pairwise

import pytest

import lab
from lab.errors import BadWorkload
from lab.memory.hash_cache import HashCache
from lab.memory.radix_cache import RadixCache
from lab.memory.replay import hit_rate
from lab.running import same_tokens
from lab.setup.fetch_model import is_complete
from lab.shared_prefixes import (
    DIALOGUES,
    LONGEST,
    SHORTEST,
    WORKLOADS,
    entries,
    few_shot_workload,
    multi_turn_workload,
    prompts,
    system_prompt_workload,
    tree_workload,
)
from lab.simulation.priced import Priced
from lab.workload import Message, Workload, fixed_workload

KINDS = ["multi-turn", "few-shot", "tree", "system-prompt"]


def arrivals(work: Workload) -> list[float]:
    return [spec.arrival for spec in work.specs]


def shared_start(prompts: list[tuple[Message, ...]]) -> int:
    """Messages all of them begin with."""
    return len(os.path.commonprefix([[repr(message) for message in messages] for messages in prompts]))


# -- the texts ----------------------------------------------------------------------------------------------
def test_every_prompt_in_the_file_is_complete() -> None:
    kinds = Counter()
    for kind, _, messages, entry in entries(json.loads(DIALOGUES.read_text(encoding="utf-8"))):
        kinds[kind] += 1
        turns = messages[1:] if messages[0].role == "system" else messages
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
        assert all(turn.content.strip() == turn.content != "" for turn in messages), messages
        assert SHORTEST <= entry["clear_tokens"] <= 2 * LONGEST
    assert kinds == {"multi-turn": 66, "few-shot": 39, "tree": 36, "system-prompt": 36}


@pytest.mark.parametrize("kind, groups, shared", [("few-shot", 4, 13), ("tree", 3, 1), ("system-prompt", 3, 1)])
def test_groups_share_their_beginning(kind: str, groups: int, shared: int) -> None:
    found = prompts(kind)
    assert len(found) == groups
    for group in found:
        assert len({prompt.messages for prompt in group}) == len(group)
        assert shared_start([prompt.messages for prompt in group]) >= shared
    assert shared_start([group[0].messages for group in found]) == 0


def test_a_turn_repeats_the_conversation_before_it() -> None:
    for conversation in prompts("multi-turn"):
        assert len(conversation) >= 4
        for before, after in pairwise(conversation):
            assert after.messages[: len(before.messages)] == before.messages
            assert len(after.messages) == len(before.messages) + 2


def test_branches_of_a_tree_share_more_than_the_tree() -> None:
    for tree in prompts("tree"):
        branches: dict[tuple, int] = Counter(leaf.messages[:-1] for leaf in tree)
        assert len(branches) == 3 and set(branches.values()) == {4}


# -- the workloads ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_requests_at_every_rate(name: str) -> None:
    make = WORKLOADS[name]
    slow, fast = make(20, 2.0, 3), make(20, 8.0, 3)
    assert slow.specs == fast.specs and slow.at_rate(8.0) == fast
    assert make(20, 2.0, 4).specs != slow.specs
    assert len(slow) == 20 and slow.name == f"{name}-20-seed3"
    assert make(3).rate == 4.0 and make(3, load=0.5).load == 0.5
    assert {spec.sampling.max_tokens for spec in make(9, max_tokens=7).specs} == {7}
    assert {spec.sampling.temperature for spec in make(3, temperature=0.5).specs} == {0.5}


@pytest.mark.parametrize("name", KINDS)
def test_arrivals_come_at_the_rate(name: str) -> None:
    times = arrivals(WORKLOADS[name](1000, seed=1))
    assert times[0] == 0.0 and times == sorted(times)
    assert times[-1] / 999 == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_short_and_clear_cut(name: str) -> None:
    clear = {prompt.messages: prompt.clear_tokens for group in prompts(name) for prompt in group}
    for spec in WORKLOADS[name](80).specs:
        assert SHORTEST <= spec.sampling.max_tokens <= min(LONGEST, clear[spec.prompt])
        assert not spec.sampling.ignore_eos


@pytest.mark.parametrize("name, pool", [("few-shot", 39), ("tree", 36), ("system-prompt", 36)])
def test_every_prompt_comes_before_one_comes_again(name: str, pool: int) -> None:
    asked = [spec.prompt for spec in WORKLOADS[name](2 * pool, seed=5).specs]
    assert len(set(asked[:pool])) == len(set(asked[pool:])) == pool
    assert asked[:pool] != asked[pool:]


@pytest.mark.parametrize("think", [0.0, 2.0, 30.0])
def test_turns_of_a_conversation_come_in_their_order(think: float) -> None:
    work = multi_turn_workload(60, seed=2, think=think)
    waiting: list[tuple[Message, ...]] = []  # turns already asked, the last one of each conversation
    for spec in work.specs:
        if len(spec.prompt) > 1:
            waiting.remove(spec.prompt[:-2])  # the turn before it came before it
        waiting.append(spec.prompt)
    assert len(waiting) < 60
    assert arrivals(work)[-1] == pytest.approx(59)


def test_a_pause_for_thought_pulls_the_turns_apart() -> None:
    def mean_pause(think: float) -> float:
        seen, pauses = {}, []
        for spec in multi_turn_workload(60, seed=2, think=think).specs:
            if spec.prompt[0] in seen:
                pauses.append(spec.arrival - seen[spec.prompt[0]])
            seen[spec.prompt[0]] = spec.arrival
        return sum(pauses) / len(pauses)

    assert 3 < mean_pause(6.0) < 8
    assert mean_pause(1.0) < 0.3 * mean_pause(6.0)


@pytest.mark.parametrize("name", KINDS)
def test_one_request_is_enough(name: str) -> None:
    assert arrivals(WORKLOADS[name](1)) == [0.0]


@pytest.mark.parametrize("name", KINDS)
def test_bad_arguments(name: str) -> None:
    with pytest.raises(BadWorkload, match="requests of 0"):
        WORKLOADS[name](0)
    with pytest.raises(BadWorkload, match="not both"):
        WORKLOADS[name](3, rate=1.0, load=1.0)


@pytest.mark.parametrize("think", [-1.0, math.nan, math.inf])
def test_a_pause_is_a_time(think: float) -> None:
    with pytest.raises(BadWorkload, match="think .* is"):
        multi_turn_workload(3, think=think)


# -- conversations as prompts -------------------------------------------------------------------------------
TALK = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Bye"))


def test_a_conversation_goes_through_the_models_template() -> None:
    class Model(Priced):
        def encode_chat(self, messages) -> list[int]:
            self.step = messages
            return [1, 2, 3]

    model = Model()
    (made,) = fixed_workload([TALK], [3]).requests(model)
    assert made.prompt == [1, 2, 3]
    assert model.step == [{"role": turn.role, "content": turn.content} for turn in TALK]


def test_without_a_model_prompts_share_what_their_texts_share() -> None:
    longer = (*TALK, Message("assistant", "Good bye."), Message("user", "Wait!"))
    short, long, other = (each.prompt for each in fixed_workload([TALK, longer, "Hi"], [1] * 3).requests(Priced()))
    start = len(os.path.commonprefix([short, long]))
    assert len(short) - 1 <= start < len(long) and other[0] != short[0]
    assert fixed_workload(["a"], [1]).requests(Priced())[0].num_prompt == 1


@pytest.mark.parametrize("name, least", [("multi-turn", 0.4), ("few-shot", 0.7), ("tree", 0.7), ("system-prompt", 0.7)])
def test_a_prefix_cache_finds_the_shared_part(name: str, least: float) -> None:
    work = WORKLOADS[name](32, rate=1.0)
    plain = lab.run(work, Priced())
    total = plain.computed_tokens
    for kind in ("hash", "radix"):
        report = lab.run(work, Priced(), prefix_cache=kind)
        assert report.cached_tokens + report.computed_tokens == total
        assert report.cached_tokens > least * total


def test_depth_first_order_needs_less_of_the_cache_than_random_order() -> None:
    tree = [prompt.messages for group in prompts("tree") for prompt in group]
    ordered = fixed_workload(tree, [1] * len(tree), [10.0 * index for index in range(len(tree))])
    mixed = tree_workload(36, rate=0.1, max_tokens=1)
    small = dict(prefix_cache="radix", batching="continuous:1", blocks=30)
    best, random = (lab.run(work, Priced(), **small).cached_tokens for work in (ordered, mixed))
    assert best > 1.5 * random


@pytest.mark.parametrize("cache", [HashCache, RadixCache])
def test_hit_rate_wants_lengths(cache) -> None:
    with pytest.raises(BadWorkload, match="a prompt with text"):
        hit_rate(few_shot_workload(2), cache())


# -- the real model -----------------------------------------------------------------------------------------
needs_model = pytest.mark.skipif(not is_complete(), reason="the model is not downloaded: run `python3 -m lab`")


@pytest.fixture(scope="module")
def model():
    return lab.load_model()


@needs_model
def test_prompts_have_a_size_a_cpu_can_bear(model) -> None:
    for name in KINDS:
        lengths = [each.num_prompt for each in WORKLOADS[name](36).requests(model)]
        assert max(lengths) <= 400 and sum(lengths) / len(lengths) >= 80
        assert model.max_context > 400 + LONGEST


@needs_model
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KINDS)
def test_the_same_tokens_with_every_cache(model, name: str) -> None:
    work = WORKLOADS[name](8, rate=1e6, seed=1, max_tokens=6)
    options = dict(clock="virtual", batching="continuous:4", check=True)
    result = {kind: lab.run(work, model, prefix_cache=kind, **options) for kind in ("none", "hash", "radix")}
    for kind in ("hash", "radix"):
        assert same_tokens(result["none"], result[kind]).verdict != "no"
    full = result["none"].computed_tokens
    for kind in ("hash", "radix"):
        assert result[kind].cached_tokens > 0
        assert result[kind].computed_tokens == full - result[kind].cached_tokens


@needs_model
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stored_counts_are_clear_cut(model) -> None:
    """A few of each kind, another each time the file changes; `lab clear-dialogues --check` measures all."""
    from lab.course.clear_prompts import MARGIN

    chosen = [prompt for kind in KINDS for group in prompts(kind)[:2] for prompt in group[-2:]]
    limits = [min(LONGEST, prompt.clear_tokens) for prompt in chosen]
    work = fixed_workload([prompt.messages for prompt in chosen], limits, ignore_eos=False)
    report = lab.run(work, model, clock="virtual", prefix_cache="radix")
    assert all(margin >= MARGIN for times in report.times.values() for margin in times.margins)


def test_names_are_those_of_the_command_line() -> None:
    assert list(WORKLOADS) == ["chat", *KINDS]
    assert WORKLOADS["system-prompt"] is system_prompt_workload
