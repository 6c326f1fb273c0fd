"""On a CUDA device: the tokens of the CPU, graphs and kernels that agree, swapping, and no hidden waiting.

Half-precision results are compared by how far they lie from the float32 ones, as a share of the spread of the
logits: bfloat16 keeps 8 bits, so a few hundredths; a wrong mask, offset or block gives a share near 1.
"""

from __future__ import annotations

import pytest
import torch

import lab
from lab.errors import ModelError
from lab.execution import flash_attention
from lab.execution.attention import make_attention
from lab.execution.cuda_inputs import on_device
from lab.execution.inputs import build_inputs
from lab.execution.kv_cache import PagedKV
from lab.execution.model import load_model
from lab.execution.runner import ModelRunner, choose_attention
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request

pytestmark = pytest.mark.gpu

BLOCK = 256
HALF_SHARE = 0.1  # of the logits' standard deviation, on average


@pytest.fixture(scope="module")
def exact():
    return load_model("tiny", device="cuda", dtype="float32")


@pytest.fixture(scope="module")
def half():
    return load_model("tiny", device="cuda")


@pytest.fixture(params=["sdpa", "flash"])
def backend(request, half):
    if request.param == "flash":
        refused = flash_attention.refusal(half.device, half.dtype, half.config.head_dim, BLOCK)
        if refused or not flash_attention.is_installed():
            pytest.skip(refused or "flash-attn is not installed")
    return request.param


def prompts_of(random_prompt):
    return [random_prompt(length, seed) for seed, length in enumerate((1, 17, 255, 256, 300))]


def test_float32_tokens_are_those_of_the_cpu(exact, tiny, drive, random_prompt):
    prompts = prompts_of(random_prompt)
    wanted = drive(tiny, num_blocks=100).generate(prompts, 16)
    for chunk in (None, 33):
        assert drive(exact, "sdpa", num_blocks=100).generate(prompts, 16, chunk) == wanted
    assert drive(exact, "padded", num_blocks=100).generate(prompts, 16) == wanted


def test_the_default_model_says_paris(real_folder, drive):
    model = load_model(real_folder, device="cuda")
    prompt = model.encode_chat("What is the capital of France?")
    driver = drive(model, "auto", num_blocks=8, block_size=model.best_block_size)
    assert "Paris" in model.decode(driver.generate([prompt], 10)[0])


def mixed_logits(model, attention, random_prompt):
    """Logits of a step of a decode, a chunk at an offset, a whole prompt and a decode across a block boundary."""
    spans = [(299, 1), (250, 20), (0, 90), (256, 1)]
    tables = [[5, 0], [3, 7], [1], [2, 6]]
    cache = PagedKV(model.config, 8, BLOCK, device=model.device, dtype=model.dtype)
    rows = []
    for index, ((start, count), table) in enumerate(zip(spans, tables, strict=True)):
        request = Request(index, random_prompt(start + count, index), block_table=table)
        rows.append(Row(request, start, count, False))
        if start:
            run_rows(model, make_attention("sdpa"), cache, [Row(request, 0, start, False)])
    return run_rows(model, attention, cache, rows).float().cpu()


def run_rows(model, attention, cache, rows):
    inputs = build_inputs(StepPlan(rows), BLOCK, cache.num_blocks)
    inputs.last = torch.arange(inputs.row_starts[-1])
    return model.forward(on_device(inputs, model.device), cache, attention)


def test_a_mixed_step_in_half_precision_is_near_the_float32_one(half, exact, backend, random_prompt):
    wanted = mixed_logits(exact, make_attention("sdpa"), random_prompt)
    got = mixed_logits(half, choose_attention(half, BLOCK, backend), random_prompt)
    assert (got - wanted).abs().mean() < HALF_SHARE * wanted.std()


def test_graphs_give_the_logits_of_plain_steps(half, backend, random_prompt):
    """Three requests in a bucket of four, at four successive positions."""
    results = []
    for graphs in (False, True):
        runner = ModelRunner(half, 8, BLOCK, backend, graphs=graphs)
        requests = [Request(i, random_prompt(259, i), block_table=[2 * i, 2 * i + 1]) for i in range(3)]
        runner.run(StepPlan([Row(request, 0, 255, False) for request in requests]))
        steps = [StepPlan([Row(request, place, 1, True) for request in requests]) for place in range(255, 259)]
        results.append(torch.stack([runner._logits(step).float().cpu() for step in steps]))
        if graphs:
            used = {shape.rows: graph.replays for shape, graph in runner.graphs().captured.items() if graph.replays}
            assert sum(used.values()) == 4 and set(used) == {4}
    assert (results[0] - results[1]).abs().mean() < HALF_SHARE * results[0].std()


def test_graphs_change_no_token_in_float32(exact, tiny, drive, random_prompt):
    prompts = prompts_of(random_prompt)
    driver = drive(exact, "sdpa", num_blocks=100)
    assert driver.generate(prompts, 20) == drive(tiny, num_blocks=100).generate(prompts, 20)
    assert driver.runner.graphs().captured


@pytest.mark.parametrize("graphs", [False, True])
def test_no_step_waits_for_the_gpu_before_its_end(half, backend, graphs, random_prompt):
    runner = ModelRunner(half, 8, BLOCK, backend, num_host_blocks=2, graphs=graphs)
    requests = [Request(i, random_prompt(20, i), block_table=[i]) for i in range(2)]
    prefill = StepPlan([Row(request, 0, 18, False) for request in requests])
    mixed = StepPlan([Row(requests[0], 18, 1, True), Row(requests[1], 18, 2, True)])
    decode = StepPlan([Row(requests[0], 19, 1, True), Row(requests[1], 19, 1, True)])
    for plan in (prefill, mixed, decode):
        runner.run(plan)  # whatever is set up on first use may wait
    runner.run(StepPlan([], copies=[BlockCopy("out", 5, 0), BlockCopy("in", 0, 6)]))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for plan in (prefill, mixed, decode):
            runner.cache.apply([BlockCopy("out", 5, 0), BlockCopy("in", 0, 6), BlockCopy("copy", 6, 7)])
            runner._logits(plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_swapped_blocks_come_back(exact, drive, tiny, random_prompt):
    prompt = random_prompt(24)
    wanted = drive(tiny).generate([prompt], 2)[0]
    runner = ModelRunner(exact, num_blocks=6, attention="sdpa", num_host_blocks=2)
    request = Request(0, prompt, block_table=[0, 1])
    first = runner.run(StepPlan([Row(request, 0, 24, True)])).tokens[0]
    other = Request(1, random_prompt(32, 1), block_table=[0, 1])  # takes the blocks in the very step that frees them
    copies = [BlockCopy("out", 0, 1), BlockCopy("out", 1, 0)]
    runner.run(StepPlan([Row(other, 0, 32, True)], copies=copies))
    request.block_table = [5, 3]
    request.output, request.num_output = [first], 1
    copies = [BlockCopy("in", 1, 4), BlockCopy("copy", 4, 5), BlockCopy("in", 0, 3)]
    assert [first, runner.run(StepPlan([Row(request, 24, 1, True)], copies=copies)).tokens[0]] == wanted


@pytest.mark.parametrize("lanes", ["split:2", "phases"])
def test_lanes_on_streams_give_the_tokens_of_one(exact, tiny, lanes):
    work = lab.chat_workload(8, rate=1e6, max_tokens=20, seed=1)
    wanted = lab.run(work, tiny, clock="virtual")
    got = lab.run(work, exact, batching="continuous:8", lanes=lanes)
    assert [times.output for times in got.times.values()] == [times.output for times in wanted.times.values()]


@pytest.mark.parametrize("options", [{}, {"preemption": "swap", "blocks": 60}, {"prefix_cache": "radix"}])
def test_the_engine_gives_the_tokens_of_the_cpu(exact, tiny, options):
    work = lab.chat_workload(8, rate=1e6, max_tokens=40, seed=1)
    wanted = lab.run(work, tiny, clock="virtual")
    got = lab.run(work, exact, clock="virtual", check=True, **options)
    assert [times.output for times in got.times.values()] == [times.output for times in wanted.times.values()]
    assert got.preemptions > 0 or "preemption" not in options


def test_sampling_on_the_gpu_draws_what_the_cpu_draws(exact, tiny, drive, random_prompt):
    prompts = prompts_of(random_prompt)[:3]
    for options in (dict(temperature=0.8, top_p=0.9), dict(temperature=1.0, top_k=20), dict(temperature=0.5)):
        wanted = drive(tiny).generate(prompts, 8, seed=3, **options)
        assert drive(exact, "sdpa").generate(prompts, 8, seed=3, **options) == wanted


def test_memory_that_is_not_there_is_said_with_sizes(half):
    with pytest.raises(ModelError, match=r"keys and values: 4000000000 \+ 0 host blocks.* GiB.* take fewer blocks"):
        ModelRunner(half, 4_000_000_000, 16)
    runner = ModelRunner(half, 64, 64, "sdpa", graphs=False)
    torch.cuda.empty_cache()
    held = torch.cuda.mem_get_info()[0] - 2**28
    ballast = torch.empty(max(0, held), dtype=torch.uint8, device="cuda")
    try:
        request = Request(0, [1] * 4000, block_table=list(range(63)))
        rows = [Row(request, 0, 4000, True, padding=200_000)]
        with pytest.raises(ModelError, match="no memory for a step of 204000 tokens over 1 rows on cuda.* are free"):
            runner.run(StepPlan(rows))
    finally:
        del ballast
        torch.cuda.empty_cache()


def test_a_device_that_is_not_there_is_named():
    count = torch.cuda.device_count()
    with pytest.raises(ModelError, match=f"'cuda:{count}' is not here: .* sees {count} CUDA devices: "):
        load_model("tiny", device=f"cuda:{count}")
