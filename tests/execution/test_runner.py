"""The runner on real tensors: batched equals solo, copies move bytes, misuse is named."""

from __future__ import annotations

import pytest
import torch

from lab.errors import BadRequest, BlockError, ModelError
from lab.execution.attention import BACKENDS
from lab.execution.kv_cache import PagedKV
from lab.execution.model import load_model
from lab.execution.runner import ModelRunner
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request

LENGTHS = (1, 15, 16, 17, 40, 64)


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("chunk", [None, 1, 7, 16, 17])
def test_batched_tokens_are_solo_tokens(tiny, drive, random_prompt, attention, chunk):
    prompts = [random_prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    solo = [drive(tiny, "reference").generate([prompt], 16)[0] for prompt in prompts]
    assert drive(tiny, attention).generate(prompts, 16, chunk) == solo


def test_batched_tokens_are_solo_tokens_on_the_default_model(real, drive):
    texts = ["What is the capital of France?", "Write one line about the sea.", "Name three colours.", "2 + 2 ="]
    prompts = [real.tokenizer.encode_chat(text) for text in texts]
    solo = [drive(real, "reference").generate([prompt], 10)[0] for prompt in prompts]
    assert "Paris" in real.tokenizer.decode(solo[0])
    for attention in BACKENDS:
        assert drive(real, attention).generate(prompts, 10, chunk=24) == solo


def test_tiny_is_the_same_everywhere_and_does_not_repeat_itself(tiny, drive, random_prompt):
    again = load_model("tiny")
    outputs = drive(tiny).generate([random_prompt(12, seed) for seed in range(4)], 40)
    assert outputs == drive(again).generate([random_prompt(12, seed) for seed in range(4)], 40)
    assert all(len(set(output)) > 20 for output in outputs)
    assert len({tuple(output) for output in outputs}) == 4


def test_margins_come_only_with_sampled_rows(tiny, drive, random_prompt):
    driver = drive(tiny)
    done, unfinished = (driver.request(i, random_prompt(20, i)) for i in range(2))
    result = driver.step([driver.row(unfinished, 7), driver.row(done, 20)])
    assert result.tokens[0] is None and result.margins[0] is None
    assert result.tokens[1] is not None and result.margins[1] > 0
    assert result.seconds > 0 and not result.modelled


def test_only_sampled_rows_go_through_the_head(tiny, random_prompt, monkeypatch):
    seen = []
    head = tiny.weights.head
    monkeypatch.setattr(tiny.weights, "head", lambda x: seen.append(x.shape[0]) or head(x))
    runner = ModelRunner(tiny, 8)
    rows = [Row(Request(i, random_prompt(30), block_table=[2 * i, 2 * i + 1]), 0, 30, i == 1) for i in range(3)]
    runner.run(StepPlan(rows))
    assert seen == [1]


def test_every_projection_is_one_product_per_layer(tiny, drive, random_prompt, monkeypatch):
    """Twelve prompts in one step: four products per layer, each over all their tokens."""
    from lab.execution.linear import Linear

    shapes = []
    call = Linear.__call__
    monkeypatch.setattr(Linear, "__call__", lambda self, x, **onto: shapes.append(x.shape[0]) or call(self, x, **onto))
    driver = drive(tiny)
    driver.step([driver.row(driver.request(i, random_prompt(5 + i)), 5 + i) for i in range(12)])
    total = sum(5 + i for i in range(12))
    assert shapes == [total] * 4 * tiny.config.num_layers + [12]


def test_copies_move_whole_blocks_before_the_step(tiny, random_prompt, drive):
    prompt = random_prompt(24)
    wanted = drive(tiny).generate([prompt], 2)[0]
    runner = ModelRunner(tiny, num_blocks=6, num_host_blocks=2)
    request = Request(0, prompt, block_table=[0, 1])
    first = runner.run(StepPlan([Row(request, 0, 24, True)])).tokens[0]
    runner.run(StepPlan([], copies=[BlockCopy("out", 0, 1), BlockCopy("out", 1, 0)]))
    runner.cache.keys[:, :2] = 0  # another request used the blocks meanwhile
    runner.cache.values[:, :2] = 0
    request.block_table = [5, 3]
    request.output, request.num_output = [first], 1
    copies = [BlockCopy("in", 1, 4), BlockCopy("copy", 4, 5), BlockCopy("in", 0, 3)]
    second = runner.run(StepPlan([Row(request, 24, 1, True)], copies=copies)).tokens[0]
    assert [first, second] == wanted


@pytest.mark.parametrize(
    "copy", [BlockCopy("copy", 0, 6), BlockCopy("out", 0, 2), BlockCopy("in", 2, 0), BlockCopy("sideways", 0, 0)]
)
def test_impossible_copies_are_refused(tiny, copy):
    with pytest.raises(BlockError):
        ModelRunner(tiny, num_blocks=6, num_host_blocks=2).run(StepPlan([], copies=[copy]))


def test_misuse_is_named(tiny):
    runner = ModelRunner(tiny, num_blocks=4)
    with pytest.raises(BlockError, match="request 3 computes up to token 20 and needs 2 blocks of 16; .* holds 1"):
        runner.run(StepPlan([Row(Request(3, [1] * 20, block_table=[0]), 0, 20, True)]))
    with pytest.raises(BlockError, match="the pool has 4"):
        runner.run(StepPlan([Row(Request(3, [1] * 4, block_table=[4]), 0, 4, True)]))
    with pytest.raises(BadRequest, match="token id 512 .* 512"):
        runner.run(StepPlan([Row(Request(3, [1, 512], block_table=[0]), 0, 2, True)]))
    with pytest.raises(ModelError, match="repeats 5 times"):
        runner.run(StepPlan([Row(Request(3, [1], block_table=[0]), 0, 1, True)], repeat=5))
    with pytest.raises(ModelError, match="no attention backend 'fast'"):
        ModelRunner(tiny, 4, attention="fast")
    with pytest.raises(ModelError, match="0 blocks"):
        ModelRunner(tiny, 0)


def test_a_pool_larger_than_the_machine_is_refused_with_sizes(tiny):
    with pytest.raises(ModelError, match=r"4000000000 \+ 0 host blocks of 16 tokens: .* GiB are needed \("):
        PagedKV(tiny.config, 4_000_000_000, 16)


def test_flops_and_bytes_are_those_of_the_plan(tiny, random_prompt):
    runner = ModelRunner(tiny, 8)
    plan = StepPlan([Row(Request(0, random_prompt(3), block_table=[0]), 0, 3, True, padding=2)])
    c = tiny.config
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 176
    seen = 1 + 2 + 3 + 2 * 3
    assert runner.flops(plan) == 2 * 2 * layer * 5 + 2 * 64 * 512 + 4 * 2 * 64 * seen
    assert tiny.matrix_parameters == 2 * layer + 64 * 512
    assert tiny.num_parameters == 2 * layer + 2 * 64 * 512 + 5 * 64
    assert runner.bytes(plan) == 4 * tiny.matrix_parameters + tiny.kv_bytes_per_token * (3 + 5)
    assert tiny.kv_bytes_per_token == 2 * c.num_layers * c.num_kv_heads * c.head_dim * 4
    result = runner.run(plan)
    assert (result.flops, result.bytes) == (runner.flops(plan), runner.bytes(plan))


def test_half_precision_halves_the_bytes_and_keeps_the_logits_near(tiny, prompt_logits, random_prompt):
    """bfloat16 keeps 8 bits: a few hundredths of the logits' spread; a wrong mask or position gives a share near 1."""
    prompt = random_prompt(40)
    wanted = prompt_logits(tiny, prompt)
    for dtype in ("bfloat16", "float16"):
        half = load_model("tiny", dtype=dtype)
        plan = StepPlan([Row(Request(0, prompt, block_table=[0, 1, 2]), 0, 40, True)])
        assert 2 * ModelRunner(half, 3).bytes(plan) == ModelRunner(tiny, 3).bytes(plan)
        runner = ModelRunner(half, 3)
        assert runner.packed.name == "sdpa" and runner.cache.keys.dtype == half.dtype
        logits = runner._logits(plan)
        assert (logits.float() - wanted[-1]).abs().mean() < 0.1 * wanted[-1].std()
    with pytest.raises(ModelError, match="'paged_cpu' is for float32 on the CPU, not for torch.float16"):
        ModelRunner(half, 3, attention="paged_cpu")


def test_memory_that_ends_within_a_step_is_said_with_the_size_of_the_step(tiny, random_prompt, monkeypatch):
    runner = ModelRunner(tiny, 4)
    plan = StepPlan([Row(Request(0, random_prompt(20), block_table=[0, 1]), 0, 20, True)])
    for error in (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 9 bytes")):

        def forward(self, inputs, cache, attention, error=error):
            raise error

        monkeypatch.setattr(type(tiny), "forward", forward)
        with pytest.raises(ModelError, match="no memory for a step of 20 tokens over 1 rows on cpu; take a smaller"):
            runner.run(plan)
    monkeypatch.setattr(type(tiny), "forward", lambda *_: torch.zeros(1) + torch.zeros(2, 3) @ torch.zeros(2))
    with pytest.raises(RuntimeError, match="size mismatch|incompatible|mat1"):  # any other error stays what it is
        runner.run(plan)


def test_an_empty_plan_does_nothing(tiny):
    result = ModelRunner(tiny, 4).run(StepPlan([]))
    assert result.tokens == [] and result.margins == []


def test_two_runners_share_a_model_from_two_threads(tiny, drive, random_prompt):
    from concurrent.futures import ThreadPoolExecutor

    prompts = [random_prompt(90, seed) for seed in range(3)]
    wanted = drive(tiny).generate(prompts, 20)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(lambda: drive(tiny).generate(prompts, 20)) for _ in range(2)]
        assert [job.result() for job in jobs] == [wanted, wanted]
    assert torch.is_inference_mode_enabled() is False
