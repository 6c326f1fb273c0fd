"""Backends agree; chunks, neighbours, padding and block sizes change nothing (pitfalls 9, 11, 28, 30, 31, 33)."""

from __future__ import annotations

import pytest
import torch

from lab.execution.attention import BACKENDS, make_attention
from lab.execution.inputs import build_inputs
from lab.execution.kv_cache import PagedKV
from lab.execution.paged_kernel import TILE
from lab.plan import Row, StepPlan
from lab.request import Request

LENGTH, BLOCK = 37, 16


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("chunk", [1, TILE - 1, TILE + 1, BLOCK - 1, BLOCK, BLOCK + 1, LENGTH - 1, LENGTH, LENGTH + 1])
def test_chunks_of_every_size_give_the_logits_of_the_whole(
    tiny, attention, chunk, prompt_logits, random_prompt, tolerance
):
    prompt = random_prompt(LENGTH)
    whole = prompt_logits(tiny, prompt, "reference")
    assert (prompt_logits(tiny, prompt, attention, chunk) - whole).abs().max() < tolerance


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 11, 16, 32])
def test_the_block_size_changes_nothing(tiny, attention, block_size, prompt_logits, random_prompt, tolerance):
    prompt = random_prompt(50)
    whole = prompt_logits(tiny, prompt, "reference")
    got = prompt_logits(tiny, prompt, attention, chunk=20, block_size=block_size)
    assert (got - whole).abs().max() < tolerance


def mixed_rows(prompt_of) -> tuple[list[Row], int]:
    """A chunk at an offset, a decode, a whole prompt, a padded prompt and a finished request, over 20 blocks."""
    spans = [(20, 17, 0), (32, 1, 0), (0, 9, 0), (0, 5, 12), (30, 0, 3)]  # start, tokens, padding
    rows, used = [], 0
    for index, (start, count, padding) in enumerate(spans):
        blocks = -(-(start + count) // BLOCK) if count else 0
        table = [(7 * block) % 20 for block in range(used, used + blocks)]
        used += blocks
        request = Request(index, prompt_of(index, max(start + count, 1)), block_table=table)
        rows.append(Row(request, start, count, False, padding))
    return rows, 20


def run_mixed(model, attention, prompt_of, batch_logits, keep=range(5)):
    """Logits of the mixed step, row by row, after each row's earlier tokens were computed by the oracle."""
    rows, num_blocks = mixed_rows(prompt_of)
    cache = PagedKV(model.config, num_blocks, BLOCK)
    rows = [row for index, row in enumerate(rows) if index in keep]
    for row in rows:
        if row.start and row.num_tokens:
            batch_logits(model, [Row(row.request, 0, row.start, False)], "reference", cache)
    return batch_logits(model, rows, attention, cache).split([row.num_tokens + row.padding for row in rows]), rows


@pytest.mark.parametrize("attention", BACKENDS)
def test_a_mixed_step_gives_each_row_its_solo_logits(tiny, attention, batch_logits, random_prompt, tolerance):
    def prompt_of(index, length):
        return random_prompt(length, index)

    together, rows = run_mixed(tiny, attention, prompt_of, batch_logits)
    for index in range(4):
        (alone,), _ = run_mixed(tiny, "reference", prompt_of, batch_logits, keep=[index])
        real = rows[index].num_tokens
        assert (together[index][:real] - alone[:real]).abs().max() < tolerance
    assert all(torch.isfinite(logits).all() for logits in together)


@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize(("name", "watched"), [("tiny", range(4)), ("real", [1])])
def test_neighbours_contents_change_no_bit(name, watched, attention, batch_logits, random_prompt, request):
    """Same shapes, lengths and block ids; only what the neighbours say differs."""
    model = request.getfixturevalue(name)
    for index in watched:
        results = []
        for seed in (100, 200):

            def prompt_of(i, length, seed=seed, index=index):
                return random_prompt(length, 1 if i == index else seed + i)

            logits, rows = run_mixed(model, attention, prompt_of, batch_logits)
            results.append(logits[index][: rows[index].num_tokens])
        assert torch.equal(*results)


@pytest.mark.parametrize("attention", BACKENDS)
def test_padding_never_changes_results(tiny, attention, drive, random_prompt):
    """Padding on every row, finished rows with freed blocks, and neighbours that reuse those blocks."""
    prompts = [random_prompt(length, seed) for seed, length in enumerate((5, 31, 16, 33))]
    wanted = [drive(tiny, "reference").generate([prompt], 12)[0] for prompt in prompts]
    driver = drive(tiny, attention)
    requests = [driver.request(i, prompt) for i, prompt in enumerate(prompts)]
    stop = [3, 12, 7, 12]
    widest = max(map(len, prompts))
    driver.step([driver.row(request, request.remaining, widest - request.remaining) for request in requests])
    while any(request.num_output < n for request, n in zip(requests, stop, strict=True)):
        rows = []
        for request, n in zip(requests, stop, strict=True):
            if request.num_output < n:
                rows.append(driver.row(request, 1))
                continue
            driver.free += request.block_table
            request.block_table = []
            rows.append(driver.row_of_finished(request))
        driver.step(rows)
    for request, tokens, n in zip(requests, wanted, stop, strict=True):
        assert request.output == tokens[:n]


def test_padding_writes_to_the_scratch_block_only(tiny, random_prompt):
    cache = PagedKV(tiny.config, num_blocks=6, block_size=BLOCK)
    request = Request(0, random_prompt(10), block_table=[4])
    finished = Request(1, random_prompt(3))
    plan = StepPlan([Row(request, 0, 10, True, padding=30), Row(finished, 3, 0, False, padding=40)], "padded")
    inputs = build_inputs(plan, BLOCK, 6)
    tiny.forward(inputs, cache, make_attention("padded"))
    written = (cache.keys != 0).any(dim=-1).any(dim=2).any(dim=0)  # [blocks, slots]
    assert written[4].tolist() == [True] * 10 + [False] * 6
    assert written[[0, 1, 2, 3, 5]].sum() == 0
    assert written[cache.scratch].all()
    assert inputs.width == 43 and inputs.scratch == 6


def test_the_padded_rectangle_is_really_computed(tiny, random_prompt):
    """Rows x widest new x widest context, whatever the other rows need."""
    rows = [
        Row(Request(0, random_prompt(40), block_table=[0, 1, 2]), 39, 1, True),
        Row(Request(1, random_prompt(8), block_table=[3]), 0, 8, True),
        Row(Request(2, random_prompt(3)), 60, 0, False, 1),
    ]
    work = make_attention("padded").prepare(build_inputs(StepPlan(rows, "padded"), BLOCK, 9), 2, BLOCK)
    assert (work.rows, work.new, work.width) == (3, 8, 61)
    assert work.hidden.shape == (3, 1, 1, 8, 61)
    assert work.tables.shape == (3, 4)


def test_the_paged_kernel_sums_in_an_order_that_depends_on_the_context_only(random_prompt):
    """A token's attention is the same bits whole, chunked at any offset, alone or in a crowd."""
    torch.manual_seed(0)
    attention = make_attention("paged_cpu")
    assert attention.name == "paged_cpu"
    keys, values = torch.randn(12, 2, 64, BLOCK).mT, torch.randn(12, 2, BLOCK, 64)
    queries = torch.randn(90, 6, 64)
    request = Request(0, random_prompt(90), block_table=[5, 0, 9, 3, 11, 2])
    other = Request(1, random_prompt(40), block_table=[1, 4, 6])

    def attend(rows, queries):
        inputs = build_inputs(StepPlan(rows), BLOCK, 12)
        return attention.attend(queries, keys, values, attention.prepare(inputs, 2, BLOCK))

    whole = attend([Row(request, 0, 90, False)], queries)
    for chunk in (1, 5, 8, 13, 64):
        spans = [(start, min(chunk, 90 - start)) for start in range(0, 90, chunk)]
        parts = [attend([Row(request, a, n, False)], queries[a : a + n]) for a, n in spans]
        assert torch.equal(torch.cat(parts), whole)
    crowd = attend([Row(other, 3, 37, False), Row(request, 50, 40, False)], torch.cat([queries[:37], queries[50:]]))
    assert torch.equal(crowd[37:], whole[50:])


def test_one_core_gives_the_bits_of_several(tiny, prompt_logits, random_prompt):
    from lab.execution.cores import one_core

    prompt = random_prompt(100)
    wanted = prompt_logits(tiny, prompt)
    with one_core():
        assert torch.equal(prompt_logits(tiny, prompt), wanted)


@pytest.mark.parametrize(("slots", "dim"), [(16, 64), (8, 64), (5, 12), (32, 128), (48, 40)])
def test_the_paged_kernel_agrees_with_the_reference_for_odd_sizes(slots, dim, random_prompt):
    """Vectors that fill no panel, blocks that hold no or several groups of keys, contexts that end inside one."""
    torch.manual_seed(slots)
    blocks = -(-100 // slots)
    keys, values = torch.randn(blocks + 1, 2, dim, slots).mT, torch.randn(blocks + 1, 2, slots, dim)
    rows = [Row(Request(0, random_prompt(100), block_table=list(range(blocks))), 60, 40, False)]
    queries = torch.randn(40, 6, dim)
    inputs = build_inputs(StepPlan(rows), slots, blocks)
    wanted, got = (
        make_attention(name).attend(queries, keys, values, make_attention(name).prepare(inputs, 2, slots))
        for name in ("reference", "paged_cpu")
    )
    assert (wanted - got).abs().max() < 2e-6


def test_attention_does_not_depend_on_the_block_size(random_prompt):
    """The same keys in blocks of 5, 16 and 32 slots: the same bits."""
    torch.manual_seed(0)
    keys, values, queries = torch.randn(70, 2, 64), torch.randn(70, 2, 64), torch.randn(30, 6, 64)
    results = []
    for slots in (5, 16, 32):
        blocks = -(-70 // slots)
        pools = [torch.zeros(blocks + 1, slots, 2, 64) for _ in range(2)]
        for pool, vectors in zip(pools, (keys, values), strict=True):
            pool.view(-1, 2, 64)[:70] = vectors
        request = Request(0, random_prompt(70), block_table=list(range(blocks)))
        inputs = build_inputs(StepPlan([Row(request, 40, 30, False)]), slots, blocks)
        attention = make_attention("paged_cpu")
        key_pool, value_pool = (pool.transpose(1, 2).contiguous() for pool in pools)
        turned = key_pool.mT.contiguous().mT  # as a pool on the CPU keeps them
        results.append(attention.attend(queries, turned, value_pool, attention.prepare(inputs, 2, slots)))
    assert torch.equal(results[0], results[1]) and torch.equal(results[1], results[2])


def test_without_numba_the_reference_takes_over(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lab.execution.paged_attention", None)
    assert make_attention("paged_cpu").name == "reference"
