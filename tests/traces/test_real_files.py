"""The public traces themselves: their statistics, and how much of them a prefix cache can serve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from shared_data import shared

import lab
from lab import traces
from lab.memory.hash_cache import HashCache
from lab.memory.radix_cache import RadixCache
from lab.memory.replay import hit_rate
from lab.request import SamplingParams
from lab.simulation.priced import Priced
from lab.traces import TraceStatistics
from lab.workload import Workload

CONVERSATION = "traces/mooncake_conversation_trace.jsonl"
SYNTHETIC = "traces/mooncake_synthetic_trace.jsonl"
CACHES = [HashCache, RadixCache]

# n, span, requests/s, IAT CV, IDC at 1 s and 10 s, then mean, p50, p95, p99 of prompts and of answers
TIMED = {
    "traces/AzureLLMInferenceTrace_code_2023.csv": (
        (8819, 3436, 2.57, 13.2, 13.2, 71),
        (2048, 1469, 7303, 7436),
        (28, 13, 90, 251),
    ),
    "traces/AzureLLMInferenceTrace_conv_2023.csv": (
        (19366, 3502, 5.53, 1.09, 1.4, 4.0),
        (1155, 1020, 4083, 4142),
        (211, 129, 451, 601),
    ),
    CONVERSATION: ((12031, 3537, 3.40, 3.03, 7.9, 2.1), (12035, 6909, 39550, 85400), (343, 350, 698, 1119)),
    SYNTHETIC: ((3993, 1022, 3.91, 1.01, 1.1, 1.4), (15325, 11587, 48905, 66456), (149, 69, 519, 768)),
}
LENGTHS = {
    "traces/sharegpt_8k_filtered_llama2_lengths_sarathi.csv": (
        30731,
        (2340, 1730, 6563, 7433),
        (439, 415, 920, 998),
    ),
    "traces/arxiv_summarization_llama2_lengths_vidur.csv": (28257, (2588, 2730, 3813, 3933), (291, 167, 736, 3270)),
}


def points(distribution) -> tuple[float, ...]:
    return (distribution.mean, distribution.p50, distribution.p95, distribution.p99)


@pytest.mark.parametrize("name", TIMED, ids=lambda name: Path(name).stem)
def test_statistics_of_a_trace(name: str) -> None:
    (requests, span, rate, iat_cv, idc_1s, idc_10s), prompt, output = TIMED[name]
    found = TraceStatistics.of(traces.load(shared(name)))
    assert found.requests == requests
    assert found.span_s == pytest.approx(span, abs=0.5)
    assert found.requests_per_s == pytest.approx(rate, abs=0.005)
    assert found.iat_cv == pytest.approx(iat_cv, rel=0.005)
    assert found.idc_1s == pytest.approx(idc_1s, rel=0.02)
    assert found.idc_10s == pytest.approx(idc_10s, rel=0.2)  # the table counts the cut-off last window too
    assert points(found.prompt) == pytest.approx(prompt, abs=0.51)
    assert points(found.output) == pytest.approx(output, abs=0.51)


@pytest.mark.parametrize("name", LENGTHS, ids=lambda name: Path(name).stem)
def test_statistics_of_a_length_file(name: str) -> None:
    requests, prompt, output = LENGTHS[name]
    work = traces.load(shared(name))
    found = TraceStatistics.of(work)
    assert found.requests == requests
    assert points(found.prompt) == pytest.approx(prompt, abs=0.75)
    assert points(found.output) == pytest.approx(output, abs=1.5)
    assert found.iat_cv == pytest.approx(1.0, abs=0.02) and found.idc_1s == pytest.approx(1.0, abs=0.05)  # Poisson
    assert found.requests_per_s == pytest.approx(4.0, rel=0.02) and found.hits is None


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name, blocks, tokens", [(CONVERSATION, 0.366, 0.374), (SYNTHETIC, 0.640, 0.651)])
def test_hit_rate_of_an_unlimited_cache(name: str, blocks: float, tokens: float, cache) -> None:
    found = hit_rate(traces.mooncake(shared(name)), cache())
    assert found.of_blocks == pytest.approx(blocks, abs=0.0005)
    assert found.of_tokens == pytest.approx(tokens, abs=0.0005)


@pytest.mark.parametrize("name", [CONVERSATION, SYNTHETIC])
def test_both_caches_find_the_same(name: str) -> None:
    work = traces.mooncake(shared(name), limit=800)
    for block_size in (None, 512, 128):
        assert len({hit_rate(work, cache(), block_size) for cache in CACHES}) == 1


@pytest.mark.parametrize("kind", ["hash", "radix"])
@pytest.mark.parametrize("block_size", [512, 128])
def test_the_engine_finds_what_the_caches_hold(kind: str, block_size: int) -> None:
    """One request at a time and no eviction: exactly the hits of whole blocks."""
    work = traces.mooncake(shared(SYNTHETIC), limit=600)
    short = tuple(replace(spec, sampling=SamplingParams(max_tokens=2)) for spec in work.specs)
    work = Workload(work.name, short)
    blocks = sum(-(-spec.prompt // block_size) + 1 for spec in work.specs)
    report = lab.run(work, Priced(), batching="continuous:1", prefix_cache=kind, blocks=blocks, block_size=block_size)
    expected = hit_rate(work, RadixCache(), block_size)
    assert report.finished == 600
    assert report.cached_tokens == expected.hit_tokens
    lengths = sum(spec.prompt + 1 for spec in work.specs)
    assert report.computed_tokens + report.cached_tokens == lengths


REPLAY = """
import json, resource, sys
import lab
from lab import traces

work = traces.mooncake(sys.argv[1])
model = lab.Priced(step=0.010, token=1e-5)
report = lab.run(work, model, batching="continuous:64", chunking="budget:8192", prefix_cache=sys.argv[2],
                 block_size=512, blocks=400_000)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
assert "torch" not in sys.modules and "numpy" not in sys.modules
print(json.dumps({"peak_mb": peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), "finished": report.finished,
                  "cached": report.cached_tokens, "computed": report.computed_tokens, "steps": report.steps}))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_the_conversation_trace_replays_in_a_gigabyte(kind: str) -> None:
    """All 12,031 requests, 145 million prompt tokens and 4 million answer tokens, through the engine."""
    pytest.importorskip("resource")
    path = shared(CONVERSATION)
    root = Path(lab.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(path), kind],
        capture_output=True,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["finished"] == 12031
    assert found["peak_mb"] < 1000
    work = traces.mooncake(path)
    limit = hit_rate(work, RadixCache(), 512).hit_tokens
    assert 0.99 * limit < found["cached"] <= limit  # a block being computed cannot be found yet
    lengths = sum(spec.prompt + spec.sampling.max_tokens - 1 for spec in work.specs)
    assert found["cached"] + found["computed"] == lengths
