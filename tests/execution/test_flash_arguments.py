"""What is handed to flash-attn, given to a plain reference of its documented behaviour: the result is ours."""

from __future__ import annotations

import random

import pytest
import torch
from flash_reference import flash_attn_varlen_func

from lab.errors import ModelError
from lab.execution import flash_attention
from lab.execution.attention import ReferenceAttention, make_attention
from lab.execution.cuda_inputs import on_device, pack, pad_decodes, unpack
from lab.execution.flash_attention import FlashAttention, refusal, varlen_arguments
from lab.execution.inputs import build_inputs
from lab.execution.runner import ModelRunner, choose_attention
from lab.plan import Row, StepPlan
from lab.request import Request

BLOCK, BLOCKS = 256, 12
CPU = torch.device("cpu")


def rows_of(spans, seed=0) -> list[Row]:
    """Rows (start, tokens, padding) with random, disjoint block tables."""
    generator = random.Random(seed)
    free = list(range(BLOCKS))
    generator.shuffle(free)
    rows = []
    for index, (start, count, padding) in enumerate(spans):
        table = [free.pop() for _ in range(-(-(start + count) // BLOCK))] if count else []
        rows.append(Row(Request(index, [1] * max(start + count, 1), block_table=table), start, count, False, padding))
    return rows


MIXES = {
    "decodes": [(255, 1, 0), (256, 1, 0), (0, 1, 0), (600, 1, 0)],
    "one prompt": [(0, 9, 0)],
    "prompts": [(0, 300, 0), (0, 1, 0), (0, 256, 0)],
    "chunks at offsets": [(250, 20, 0), (512, 3, 0), (1, 255, 0)],
    "mixed": [(300, 1, 0), (0, 40, 0), (255, 2, 0), (511, 1, 0)],
    "padded rows": [(20, 5, 3), (40, 1, 2), (0, 4, 9)],
    "finished rows": [(300, 0, 1), (10, 1, 0), (2, 0, 4)],
}


@pytest.fixture
def pool():
    torch.manual_seed(0)
    return torch.randn(BLOCKS + 1, 2, BLOCK, 16), torch.randn(BLOCKS + 1, 2, BLOCK, 16)


@pytest.mark.parametrize("mix", MIXES)
def test_the_kernel_given_our_arguments_computes_our_attention(mix, pool):
    rows = rows_of(MIXES[mix])
    inputs = build_inputs(StepPlan(rows), BLOCK, BLOCKS)
    queries = torch.randn(inputs.row_starts[-1], 6, 16)
    flash, oracle = FlashAttention(flash_attn_varlen_func), ReferenceAttention()
    got = flash.attend(queries, *pool, flash.prepare(inputs, 2, BLOCK))
    wanted = oracle.attend(queries, *pool, oracle.prepare(inputs, 2, BLOCK))
    assert torch.isfinite(got).all()
    for row, first in zip(rows, inputs.row_starts, strict=False):
        mine = slice(first, first + row.num_tokens)
        assert (got[mine] - wanted[mine]).abs().amax() < 1e-5 if row.num_tokens else True


def test_lengths_and_tables_by_name():
    """A decode with 301 keys, a chunk of 5 that ends at 25 and 3 tokens of padding after it."""
    rows = rows_of([(300, 1, 0), (20, 5, 3)])
    work = varlen_arguments(build_inputs(StepPlan(rows), BLOCK, BLOCKS))
    assert work.cu_seqlens_q.tolist() == [0, 1, 6, 9]
    assert work.cu_seqlens_k.tolist() == [0, 301, 326, 351]
    assert (work.max_seqlen_q, work.max_seqlen_k) == (5, 301)
    tables = [row.request.block_table for row in rows]
    assert work.block_table.tolist() == [tables[0], [*tables[1], BLOCKS], [*tables[1], BLOCKS]]
    assert {t.dtype for t in (work.cu_seqlens_q, work.cu_seqlens_k, work.block_table)} == {torch.int32}


def test_a_padded_batch_of_decodes_is_told_the_same_lengths_on_the_device(pool):
    """In a CUDA graph lengths are read from the copied-in arrays, so only the host's maximum may differ."""
    inputs = build_inputs(StepPlan(rows_of(MIXES["decodes"])), BLOCK, BLOCKS)
    padded = pad_decodes(inputs, 8, 5, BLOCK)
    plain, work = varlen_arguments(inputs), varlen_arguments(padded)
    assert work.cu_seqlens_k[:5].tolist() == plain.cu_seqlens_k.tolist() == [0, 256, 513, 514, 1115]
    assert work.cu_seqlens_k[4:].diff().tolist() == [1, 1, 1, 1]
    assert work.cu_seqlens_q.tolist() == list(range(9))
    assert work.max_seqlen_k == 5 * BLOCK and plain.max_seqlen_k == 601
    assert work.block_table.shape == (8, 5) and set(work.block_table[4:].flatten().tolist()) == {BLOCKS}
    queries = torch.randn(8, 4, 16)
    flash = FlashAttention(flash_attn_varlen_func)
    padded_result = flash.attend(queries, *pool, work)
    assert torch.allclose(padded_result[:4], flash.attend(queries[:4], *pool, plain))


def test_arrays_survive_the_journey_through_one_buffer():
    inputs = build_inputs(StepPlan(rows_of(MIXES["padded rows"])), BLOCK, BLOCKS)
    again = unpack(pack(inputs), inputs)
    for name in ("token_ids", "positions", "visible", "blocks", "slots", "tables", "last"):
        assert torch.equal(getattr(again, name), getattr(inputs, name))
    assert again.contexts == inputs.contexts and on_device(inputs, CPU) is inputs


def test_the_oracle_refuses_what_flash_attn_refuses(pool):
    work = varlen_arguments(build_inputs(StepPlan(rows_of(MIXES["mixed"])), BLOCK, BLOCKS))
    keys, values = (tensor.transpose(1, 2) for tensor in pool)
    queries = torch.randn(44, 2, 16)
    with pytest.raises(RuntimeError, match="int32"):
        arguments = {**work.by_name(), "cu_seqlens_q": work.cu_seqlens_q.long()}
        flash_attn_varlen_func(queries, keys, values, causal=True, **arguments)
    with pytest.raises(RuntimeError, match="divisible by 256"):
        flash_attn_varlen_func(queries, keys[:, :16], values[:, :16], causal=True, **work.by_name())


def test_the_runner_on_flash_gives_the_tokens_of_paged_cpu(tiny, drive, random_prompt):
    """The whole path: scatter into blocks of 256, arguments, a kernel that behaves as documented."""
    prompts = [random_prompt(length, seed) for seed, length in enumerate((3, 255, 256, 300))]
    wanted = drive(tiny).generate(prompts, 4)
    driver = drive(tiny, "sdpa", num_blocks=BLOCKS, block_size=BLOCK)
    driver.runner.packed = FlashAttention(flash_attn_varlen_func)
    assert driver.generate(prompts, 4, chunk=100) == wanted


def test_flash_is_refused_in_a_sentence_where_it_cannot_serve(tiny, monkeypatch):
    assert "runs on NVIDIA GPUs, the model is on cpu" in refusal(CPU, torch.bfloat16, 64, 256)
    with pytest.raises(ModelError, match="take 'sdpa'"):
        ModelRunner(tiny, 4, attention="flash")
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "needs an Ampere GPU or newer, Tesla T4 is older" in refusal(gpu, torch.float16, 64, 256)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert "computes in float16 and bfloat16, the model is in torch.float32" in refusal(gpu, torch.float32, 64, 256)
    assert "heads of at most 256, this model's have 288" in refusal(gpu, torch.float16, 288, 256)
    assert "a multiple of 256 tokens, these have 16: take block_size=256" in refusal(gpu, torch.float16, 64, 16)
    assert refusal(gpu, torch.bfloat16, 64, 512) is None


def test_a_missing_flash_attn_says_how_to_install_it_and_what_serves_instead(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flash_attn", None)
    with pytest.raises(ModelError, match=r"needs the package flash-attn.*pip install '\.\[gpu\]'.*take 'sdpa'"):
        make_attention("flash")


def test_the_best_block_size_is_what_flash_attn_asks_for_where_it_serves(tiny, monkeypatch):
    assert tiny.best_block_size == 16
    monkeypatch.setattr(flash_attention, "refusal", lambda *sizes: None)
    monkeypatch.setattr(flash_attention, "is_installed", lambda: True)
    assert tiny.best_block_size == BLOCK
    monkeypatch.setattr(flash_attention, "is_installed", lambda: False)
    assert tiny.best_block_size == 16


@pytest.mark.parametrize(
    ("installed", "refused", "dtype", "chosen"),
    [
        (False, None, "float32", "paged_cpu"),
        (True, "no GPU", "float32", "paged_cpu"),
        (True, "no GPU", "bfloat16", "sdpa"),
        (False, None, "float16", "sdpa"),
        (True, None, "float16", "flash"),
    ],
)
def test_auto_takes_the_fastest_that_serves(installed, refused, dtype, chosen, monkeypatch):
    from lab.execution.model import load_model

    monkeypatch.setattr(flash_attention, "is_installed", lambda: installed)
    monkeypatch.setattr(flash_attention, "refusal", lambda *sizes: refused)
    monkeypatch.setattr(flash_attention, "flash_attn", lambda: flash_attn_varlen_func)
    model = load_model("tiny", dtype=dtype)
    assert choose_attention(model, 256).name == chosen
