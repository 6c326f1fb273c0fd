"""The full product of axes: the same tokens everywhere, the books in order after every step.

On the tiny model with real tensors, on the default model over a sample, and on HashRunner under random traffic with
aborts, requests that never fit and tiny pools. `LAB_FUZZ=10000` runs more of the last.
"""

from __future__ import annotations

import itertools
import os
import random

import pytest
from oracles import VOCAB, HashModel, assert_books_balance, solo

import lab
from lab.clock import Driver, VirtualClock
from lab.errors import BadPolicy, NeverFits
from lab.request import Request, SamplingParams
from lab.running import build_engine, run, same_tokens
from lab.setup.paths import model_dir
from lab.workload import Workload, fixed_workload

BATCHING = (
    "static:3",
    "static:3:16",
    "dynamic:3:10ms",
    "dynamic:3:pid",
    "dynamic:3:marginal-cost",
    "continuous:3",
    "continuous:3:delay-factor:0.5",
)
CHUNKING = ("whole", "budget:1", "budget:7", "budget:64", "slack:50ms")
ORDERING = (
    "fcfs",
    "shortest-prompt",
    "shortest-remaining",
    "earliest-deadline",
    "hybrid:0.008",
    "aged:shortest-prompt:50ms",
    "longest-prefix",
    "hrrn",
    "k-lpm:2",
    "aged:longest-prefix:50ms",
)
PREEMPTION = ("recompute", "recompute:least-progress", "swap", "swap:most-blocks")
CACHE = ("none", "hash", "radix")
ATTENTION = ("packed", "padded")
AXES = {
    "batching": BATCHING,
    "chunking": CHUNKING,
    "ordering": ORDERING,
    "preemption": PREEMPTION,
    "prefix_cache": CACHE,
    "attention": ATTENTION,
}


def sensible(options: dict) -> bool:
    """Slack chunking paces tokens, which batch delivery holds back: that combination is refused when built."""
    return not (options["chunking"].startswith("slack") and not options["batching"].startswith("continuous"))


def combinations(count: int, seed: int) -> list[dict]:
    """The whole product of batching, chunking and attention, each with other axes drawn; then `count` random ones."""
    draw = random.Random(seed)
    inner = [dict(zip(("batching", "chunking", "attention"), values, strict=True))
             for values in itertools.product(BATCHING, CHUNKING, ATTENTION)]  # fmt: skip
    rest = {name: values for name, values in AXES.items() if name not in inner[0]}
    found = [options | {name: draw.choice(values) for name, values in rest.items()} for options in inner]
    found += [{name: draw.choice(values) for name, values in AXES.items()} for _ in range(count)]
    return [options for options in found if sensible(options)]


def shared_prompts(vocabulary: int) -> Workload:
    """Prompts around block boundaries, half of them with a common beginning; all there within a few steps."""
    draw = random.Random(7)
    root = [draw.randrange(vocabulary) for _ in range(40)]
    prompts = [
        tuple(root[: 8 * (i % 4)] + [draw.randrange(vocabulary) for _ in range(length)])
        for i, length in enumerate((7, 8, 9, 15, 16, 17, 3))
    ]
    return fixed_workload(prompts, (9, 8, 2, 7, 12, 1, 10), arrivals=[0.01 * i for i in range(7)])


COMBINATIONS = combinations(320, seed=0)


@pytest.mark.parametrize("part", range(8))
def test_the_tiny_model_says_the_same_under_every_combination(part: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    model = lab.Priced(lab.load_model("tiny"), step=0.01, token=0.0005)
    work = shared_prompts(250)
    reference = run(work, model, batching="continuous:1", chunking="whole")
    assert len(COMBINATIONS) >= 300
    preempted = cached = 0
    for options in COMBINATIONS[part::8]:
        report = run(work, model, blocks=8, block_size=8, check=True, **options)
        assert same_tokens(reference, report).verdict in ("yes", "tie"), options
        assert report.finished == 7, options
        preempted, cached = preempted + report.preemptions, cached + report.cached_tokens
    assert preempted and cached, "the techniques were on"


SAMPLE = [options for options in combinations(0, seed=5) if options["chunking"] not in ("budget:1", "budget:7")][::7]


@pytest.mark.parametrize("options", SAMPLE, ids=lambda options: " ".join(options.values()))
def test_the_default_model_says_the_same(options: dict) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    if not (model_dir("smollm2-135m-instruct") / "model.safetensors").is_file():
        pytest.skip("the default model has not been fetched")
    work, model = lab.chat_workload(4, rate=1e6, max_tokens=4, seed=2), lab.load_model()
    reference = run(work, model, batching="continuous:1", clock="virtual")
    report = run(work, model, clock="virtual", check=True, **options)
    assert same_tokens(reference, report).verdict in ("yes", "tie")


@pytest.mark.parametrize("part", range(4))
def test_random_traffic_under_random_axes(part: int) -> None:
    runs = int(os.environ.get("LAB_FUZZ", "1000")) // 4
    seen = {"refused": 0, "abort": 0, "preempted": 0, "cached": 0}
    for seed in range(part * runs, (part + 1) * runs):
        one_fuzz_run(random.Random(seed), seed, seen)
    assert all(seen.values()), seen


def one_fuzz_run(draw: random.Random, seed: int, seen: dict[str, int]) -> None:
    options = {name: draw.choice(values) for name, values in AXES.items()}
    if not sensible(options):
        options["chunking"] = "budget:5"
    size = draw.choice([1, 2, 4, 16])
    requests = traffic(draw)
    needs = sorted(-(-request.max_total // size) for request in requests)
    blocks = draw.choice([needs[-1], needs[-1] + 3, max(1, needs[-1] - 1), 500])
    engine = build_engine(HashModel(), requests, blocks=blocks, block_size=size, **options)
    engine.check_every_step = True
    driver = Driver(engine, requests, VirtualClock())
    while not driver.done:
        driver.tick()
        if draw.random() < 0.02 and engine.requests:
            engine.abort(draw.choice(list(engine.requests)))
    engine.flush()
    for request in engine.requests.values():
        seen["cached"] += request.num_cached
        seen["preempted"] += request.num_preemptions
        if request.finish_reason == "refused":
            assert isinstance(request.error, NeverFits) and str(blocks) in str(request.error)
        if request.finish_reason in ("refused", "abort"):
            seen[request.finish_reason] += 1
        else:
            assert request.output == solo(request.prompt, request.sampling), (seed, options, request.id)
    assert_books_balance(engine)


def traffic(draw: random.Random) -> list[Request]:
    roots = [[draw.randrange(VOCAB) for _ in range(40)] for _ in range(2)]
    requests = []
    for id in range(draw.randint(1, 12)):
        own = [draw.randrange(VOCAB) for _ in range(draw.randint(1, 20))]
        prompt = draw.choice(roots)[: draw.randint(0, 40)] + own
        sampling = SamplingParams(max_tokens=draw.randint(1, 30), n=draw.choice([1, 1, 1, 1, 3]))
        arrival = draw.random() / 2
        deadline = arrival + draw.random() if draw.random() < 0.5 else None
        requests.append(Request(id, prompt, sampling, arrival, deadline, priority=draw.choice([0, 0, 0, 1])))
    return requests


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"chunking": "slack", "batching": "static:3"}, "paces the tokens that users get"),
        ({"delivery": "batch", "batching": "continuous:3"}, "waits for the end of the batch"),
        ({"memory": "reserved:max", "prefix_cache": "hash"}, "reserved memory is contiguous"),
        ({"memory": "reserved:max", "preemption": "swap"}, "reserved memory is contiguous"),
        ({"batching": "dynamic:3:delay-factor"}, "delay"),
    ],
    ids=str,
)
def test_a_combination_that_makes_no_sense_fails_when_it_is_built(options: dict, why: str) -> None:
    with pytest.raises(BadPolicy, match=why):
        build_engine(HashModel(), **options)
