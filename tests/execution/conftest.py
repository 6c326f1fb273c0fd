"""Models and small drivers shared by the execution tests."""

from __future__ import annotations

import lab  # noqa: F401  first, since it chooses how torch's threads wait

# isort: split
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from lab.execution.attention import make_attention
from lab.execution.device import seen_by_torch
from lab.execution.inputs import build_inputs
from lab.execution.kv_cache import PagedKV
from lab.execution.model import Model, load_model
from lab.execution.runner import ModelRunner
from lab.plan import Row, StepPlan
from lab.request import Request, SamplingParams
from lab.setup.paths import model_dir

#: Largest difference of logits between two ways of computing the same thing in float32, as measured below 1e-4 for
#: the default model and for `tiny` (whose logits are as large), with a margin for other machines.
LOGIT_TOLERANCE = 5e-4

#: Llama configurations that cover the branches of loading and attention.
LLAMAS = {
    "gqa": dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True),
    "mha": dict(num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True),
    "untied": dict(num_attention_heads=8, num_key_value_heads=1, tie_word_embeddings=False),
    "head_dim": dict(num_attention_heads=3, num_key_value_heads=1, head_dim=32, tie_word_embeddings=False),
    "theta": dict(num_attention_heads=4, num_key_value_heads=2, rope_theta=500000.0, tie_word_embeddings=True),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` skip themselves, with what torch sees, where there is none."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason=f"needs a CUDA device: {seen_by_torch()}")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load_model("tiny")


@pytest.fixture(scope="session")
def real_folder() -> Path:
    folder = model_dir()
    if not (folder / "config.json").is_file():
        pytest.skip(f"no default model in {folder}: run `python3 -m lab --setup-only`")
    return folder


@pytest.fixture(scope="session")
def real(real_folder: Path) -> Model:
    return load_model(real_folder)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a small random Llama with transformers, saves it, and returns its folder."""

    def build(kind: str, **save_options: object) -> Path:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(hash_of(kind))
        sizes = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=2, initializer_range=0.3)
        model = LlamaForCausalLM(LlamaConfig(**{**sizes, **LLAMAS[kind]}))
        folder = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder, **save_options)
        return folder

    return build


def hash_of(text: str) -> int:
    return sum(text.encode())


class Driver:
    """Plays the part of engine and memory: owns block tables, advances requests, checks nothing."""

    def __init__(self, model: Model, attention: str = "paged_cpu", num_blocks: int = 64, block_size: int = 16, seed=0):
        self.runner = ModelRunner(model, num_blocks, block_size, attention)
        self.attention = "padded" if attention == "padded" else "packed"
        self.block_size = block_size
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)

    def request(self, id: int, prompt: Sequence[int], sampling: SamplingParams | None = None) -> Request:
        return Request(id, prompt, sampling or SamplingParams())

    def row(self, request: Request, num_tokens: int, padding: int = 0) -> Row:
        """The next `num_tokens` of a request, with blocks for them."""
        needed = -(-(request.num_computed + num_tokens) // self.block_size)
        while len(request.block_table) < needed:
            request.block_table.append(self.free.pop())
        return Row(request, request.num_computed, num_tokens, 0 < num_tokens == request.remaining, padding)

    def row_of_finished(self, request: Request, padding: int = 1) -> Row:
        """A finished request that a static batch still carries."""
        return Row(request, request.num_computed, 0, False, padding)

    def step(self, rows: list[Row]):
        result = self.runner.run(StepPlan(rows, self.attention))
        for row, token, margin in zip(rows, result.tokens, result.margins, strict=True):
            row.request.num_computed += row.num_tokens
            if row.samples:
                row.request.output.append(token)
                row.request.margins.append(margin)
                row.request.num_output += 1
        return result

    def generate(self, prompts: Sequence[Sequence[int]], count: int, chunk: int | None = None, **sampling) -> list:
        """All prompts as one batch, prefilled in chunks, until each has `count` tokens."""
        params = SamplingParams(**sampling)
        requests = [self.request(i, prompt, params) for i, prompt in enumerate(prompts)]
        while live := [request for request in requests if request.num_output < count]:
            self.step([self.row(request, min(request.remaining, chunk or request.remaining)) for request in live])
        return [request.output for request in requests]


@pytest.fixture(scope="session")
def drive() -> type[Driver]:
    return Driver


def logits_of(model: Model, rows: list[Row], attention: str, cache: PagedKV) -> torch.Tensor:
    """Logits of every packed token, padding included [tokens, vocab]."""
    plan = StepPlan(rows)
    inputs = build_inputs(plan, cache.block_size, cache.num_blocks)
    inputs.last = torch.arange(inputs.row_starts[-1])
    return model.forward(inputs, cache, make_attention(attention)).clone()


@pytest.fixture(scope="session")
def prompt_logits() -> Callable[..., torch.Tensor]:
    """Logits [prompt, vocab] of one prompt, computed in chunks of a given size."""

    def compute(model: Model, prompt, attention: str = "paged_cpu", chunk: int | None = None, block_size: int = 16):
        num_blocks = -(-len(prompt) // block_size)
        cache = PagedKV(model.config, num_blocks, block_size)
        request = Request(0, prompt, block_table=list(reversed(range(num_blocks))))
        chunk = chunk or len(prompt)
        spans = [(start, min(chunk, len(prompt) - start)) for start in range(0, len(prompt), chunk)]
        return torch.cat([logits_of(model, [Row(request, a, n, False)], attention, cache) for a, n in spans])

    return compute


@pytest.fixture(scope="session")
def batch_logits() -> Callable[..., torch.Tensor]:
    return logits_of


@pytest.fixture(scope="session")
def tolerance() -> float:
    return LOGIT_TOLERANCE


@pytest.fixture(scope="session")
def random_prompt() -> Callable[[int, int], list[int]]:
    """Seeded token ids that every test model knows."""

    def make(length: int, seed: int = 0, vocab: int = 256) -> list[int]:
        generator = random.Random(1000 * seed + length)
        return [generator.randrange(vocab) for _ in range(length)]

    return make
