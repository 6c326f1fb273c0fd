"""The price list against counting by hand, published arithmetic and its own limits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lab.errors import BadPolicy
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request
from lab.simulation.costs import Costs
from lab.simulation.hardware import Device, Fit, Link, device
from lab.simulation.model import simulated
from lab.simulation.shapes import model_shape
from lab.simulation.work import work_of

LLAMA = model_shape("llama-3-8b")
FREE = Link("free", 1e30, 0.0)


def row(start: int, num_tokens: int, samples: bool = True, padding: int = 0) -> Row:
    return Row(Request(0, None, num_prompt=start + num_tokens + 1), start, num_tokens, samples, padding)


def plan(*rows: Row, attention: str = "packed") -> StepPlan:
    return StepPlan(list(rows), attention)


def ideal(**changes) -> Device:
    """A device that reaches its peaks and costs nothing else; the roofline is all but hard."""
    fit = Fit(mfu=1, mbu=1, overhead=0, p=64, attention_mfu=1, attention_mbu=1, step_overhead=0, source="ideal")
    values = {"peak_flops": 1e14, "bandwidth": 1e12, "memory": 1e12} | changes
    return Device("ideal", "ideal", links=(FREE,), host_link=FREE, fit=fit, **values)


# -- counting ------------------------------------------------------------------------------------------------
def counted(rows: list[Row], rectangle: bool) -> tuple[int, int]:
    """(pairs of query and visible key, keys read), one by one. Finished rows read one scratch slot per padding."""
    pairs = keys = 0
    widest = max(each.num_tokens + each.padding for each in rows)
    deepest = max(each.start + each.num_tokens + each.padding for each in rows)
    for each in rows:
        if rectangle:
            pairs, keys = pairs + widest * deepest, keys + deepest
            continue
        end = each.start + each.num_tokens
        visible = [position + 1 for position in range(each.start, end)]
        visible += [end if each.num_tokens else 1] * each.padding
        pairs, keys = pairs + sum(visible), keys + (end if each.num_tokens else each.padding)
    return pairs, keys


@pytest.mark.parametrize("attention", ["packed", "padded"])
def test_sums_equal_counting_every_query_and_key(attention: str) -> None:
    draw = random.Random(3)
    for _ in range(200):
        rows = [row(draw.randint(0, 30), draw.choice([1, 1, 1, 2, 7, 16])) for _ in range(draw.randint(1, 6))]
        if draw.random() < 0.3:
            rows.append(row(draw.randint(1, 40), 0, samples=False))
        if attention == "packed":
            rows.append(row(3, draw.randint(1, 4), padding=draw.randint(0, 3)))
        widest = max(each.num_tokens for each in rows)
        for each in rows:
            if attention == "padded" or not each.num_tokens:
                each.padding = (widest if attention == "padded" else 1) - each.num_tokens
        work = work_of(StepPlan(rows, attention))
        pairs, keys = counted(rows, attention == "padded")
        assert work.chunk_pairs + work.single_keys == pairs
        assert work.chunk_keys + work.single_keys == keys
        assert work.tokens == sum(each.num_tokens + each.padding for each in rows)
        assert work.sampled == sum(each.samples for each in rows)


@pytest.mark.parametrize("carried", [[], [7], [30]])
def test_keys_of_a_stretch_are_those_of_its_steps(carried: list[int]) -> None:
    rows = [row(9, 1), row(4, 1)] + [row(context, 0, samples=False, padding=1) for context in carried]
    for attention in ("packed", "padded"):
        work = work_of(plan(*rows, attention=attention))
        assert work.keys_after(0) == work.keys_of(1) == work.single_keys
        later = work_of(plan(row(14, 1), row(9, 1), *rows[2:], attention=attention))
        assert work.keys_after(5) == later.single_keys
        assert work.keys_of(40) == sum(work.keys_after(step) for step in range(40))


def test_flops_of_a_known_step() -> None:
    # Llama-3-8B: 32 layers of 218,103,808 weights, 4096 wide queries, head 4096 × 128,256; a prompt of 1,000 tokens
    expected = 2 * 32 * 218_103_808 * 1000 + 4 * 32 * 4096 * 500_500 + 2 * 4096 * 128_256
    assert Costs(LLAMA, device("l4")).flops(work_of(plan(row(0, 1000)))) == expected


def test_bytes_of_a_known_step() -> None:
    # a decode of 2 rows at 100 keys: all layers and the head once, 202 + 2 tokens of 131,072 bytes, activations
    work = work_of(plan(row(99, 1), row(101, 1)))
    weights = 2 * (32 * 218_103_808 + 4096 * 128_256)
    activations = 2 * 2 * 32 * (11 * 4096 + 4 * (4096 + 1024) + 6 * 14336)
    assert Costs(LLAMA, device("l4")).bytes(work) == weights + 131_072 * 204 + activations


@pytest.mark.parametrize(
    "name, thousands",
    # where attention's operations over a whole prompt equal those of the linear layers: 2·P·N = 2·layers·query·N²
    [("llama-3-70b", 104), ("llama-3-8b", 53), ("llama-2-7b", 49), ("qwen2.5-0.5b", 16.6), ("smollm2-135m", 6.1)],
)
def test_where_attention_overtakes_the_linear_layers(name: str, thousands: float) -> None:
    costs, tokens = Costs(model_shape(name), device("l4")), round(thousands * 1000)
    work = work_of(plan(row(0, tokens, samples=False)))
    pairs = replace(work, chunk_pairs=0)
    assert costs.flops(work) == pytest.approx(2 * costs.flops(pairs), rel=0.015)


@pytest.mark.parametrize(
    "name, shorter",
    # two GPUs, prompts [6K, 2K, 6K] against [2K, 2K, 6K]: what 42.1 % less attention is of all prefill operations
    [("llama-3-70b", 0.292), ("llama-3-8b", 0.298), ("llama-2-7b", 0.299), ("smollm2-135m", 0.349)],
)
def test_critical_path_of_the_book_example(name: str, shorter: float) -> None:
    costs = Costs(model_shape(name), device("l4"))
    first, balanced = (
        costs.flops(work_of(plan(*(row(0, tokens, samples=False) for tokens in prompts))))
        for prompts in ((6000, 2000, 6000), (2000, 2000, 6000))
    )
    assert 1 - balanced / first == pytest.approx(shorter, abs=0.002)


# -- seconds -------------------------------------------------------------------------------------------------
def test_a_small_decode_costs_reading_the_weights_and_a_long_prompt_its_operations() -> None:
    one, ideals = ideal(), Costs(LLAMA, ideal())
    decode, prompt = work_of(plan(row(9, 1))), work_of(plan(row(0, 4096)))
    assert ideals.seconds(decode) == pytest.approx(ideals.bytes(decode) / one.bandwidth, rel=1e-3)
    assert ideals.seconds(prompt) == pytest.approx(ideals.flops(prompt) / one.peak_flops, rel=0.15)
    assert ideals.seconds(prompt) > ideals.flops(prompt) / one.peak_flops


def test_only_sampled_rows_pay_for_the_head() -> None:
    costs = Costs(LLAMA, ideal())
    without, with_it = (costs.seconds(work_of(plan(row(0, 512, samples=samples)))) for samples in (False, True))
    assert with_it - without == pytest.approx(2 * 4096 * 128_256 / 1e12, rel=1e-6)  # its bytes, once


def test_padding_is_paid_for() -> None:
    costs = Costs(LLAMA, device("a100-sxm"))
    ragged = plan(row(0, 2000), row(0, 100), row(0, 100))
    rectangle = plan(row(0, 2000), row(0, 100, padding=1900), row(0, 100, padding=1900), attention="padded")
    assert costs.seconds(work_of(rectangle)) > 2.5 * costs.seconds(work_of(ragged))
    assert costs.flops(work_of(rectangle)) == pytest.approx(3 * costs.flops(work_of(plan(row(0, 2000)))), rel=0.2)


def test_an_old_chunk_costs_more_than_a_new_one_of_the_same_size() -> None:
    costs = Costs(LLAMA, device("h100-sxm"))
    early, late = (costs.seconds(work_of(plan(row(start, 512)))) for start in (0, 7000))
    assert late > early * 1.1


def test_a_piggybacked_decode_is_nearly_free() -> None:
    # Sarathi-Serve, table 2: 1021 prefill + 3 decode tokens take 217.6 ms, 1024 prefill tokens 217.2 ms
    costs = simulated("yi-34b", "a100-pcie", tp=2).costs
    mixed, prompt = plan(row(0, 1021), row(500, 1), row(500, 1), row(500, 1)), plan(row(0, 1024))
    assert costs.seconds(work_of(mixed)) == pytest.approx(costs.seconds(work_of(prompt)), rel=0.01)


def test_block_copies_and_swaps_take_their_links_time() -> None:
    slow = replace(ideal(), host_link=Link("slow", 1e9))
    costs = Costs(LLAMA, slow, block_size=16)
    step = plan(row(9, 1))
    before = costs.seconds(work_of(step))
    step.copies = [BlockCopy("out", 0, 1), BlockCopy("in", 1, 2), BlockCopy("copy", 3, 4)]
    block = 16 * 131_072
    assert costs.seconds(work_of(step)) - before == pytest.approx(2 * block / 1e9 + 2 * block / 1e12)
    only = StepPlan([], copies=step.copies)
    assert costs.seconds(work_of(only)) == pytest.approx(2 * block / 1e9 + 2 * block / 1e12)
    assert costs.flops(work_of(only)) == 0


def test_a_correction_is_interpolated_and_constant_outside() -> None:
    fit = replace(ideal().fit, correction=((4, 2.0), (8, 1.0)))
    plain, corrected = Costs(LLAMA, ideal()), Costs(LLAMA, replace(ideal(), fit=fit))
    for tokens, factor in ((1, 2.0), (4, 2.0), (6, 1.5), (8, 1.0), (100, 1.0)):
        assert corrected.layer_seconds(tokens) == pytest.approx(factor * plain.layer_seconds(tokens))


def test_a_padded_kernel_may_have_its_own_shares_and_constant() -> None:
    """Counted by hand: half the arithmetic's and a quarter of the memory's speed, 1 ms per layer, added up."""
    one, other = ideal(), ideal()
    other = replace(other, fit=replace(other.fit, rectangle=(0.5, 0.25, 1e-3)))
    plain, own = Costs(LLAMA, one), Costs(LLAMA, other)
    packed = work_of(plan(row(0, 100), row(50, 1)))
    assert own.seconds(packed) == plain.seconds(packed)
    constant = LLAMA.layers * 1e-3
    pair = 4 * LLAMA.layers * LLAMA.query_size / 1e14 / 0.5
    key = 2 * LLAMA.layers * LLAMA.kv_heads * LLAMA.head_dim * 2 / 1e12 / 0.25
    singles = work_of(plan(row(99, 1), row(49, 1), attention="padded"))  # two rows of 100 keys
    without = plain.seconds(singles) - plain.key_seconds(singles) * 200
    assert own.seconds(singles) == pytest.approx(without + constant + 200 * (pair + key))
    chunks = work_of(plan(row(0, 100), row(0, 60, padding=40), attention="padded"))  # 200 queries, 100 keys each
    without = plain.seconds(chunks) - plain._chunk_seconds(chunks)
    assert own.seconds(chunks) == pytest.approx(without + constant + 20_000 * pair + 200 * key)
    for work in (singles, chunks):
        assert sum(own.breakdown(work).values()) == pytest.approx(own.seconds(work))


@pytest.mark.parametrize(
    "numbers, wrong", [((0.1, 0.2), "2 numbers"), ((0.0, 0.2, 0.0), "mfu of 0"), ((1, 1, -1), "-1")]
)
def test_a_rectangle_that_makes_no_sense(numbers: tuple[float, ...], wrong: str) -> None:
    with pytest.raises(BadPolicy, match=wrong):
        Fit(rectangle=numbers)


# -- several devices -----------------------------------------------------------------------------------------
def test_tensor_parallelism_shares_everything_and_pays_two_all_reduces_a_layer() -> None:
    work = work_of(plan(row(0, 2048, samples=False)))
    alone = Costs(LLAMA, ideal())
    shared = Costs(LLAMA, ideal(), tp=4)
    assert shared.seconds(work) == pytest.approx(alone.seconds(work) / 4, rel=0.1)  # norms are not shared
    linked = Costs(LLAMA, replace(ideal(), links=(Link("ring", 1e11, 5e-5),)), tp=4)
    turns = 2 * 3 / 4 * 2048 * 4096 * 2 / 1e11  # a ring moves 2(n − 1)/n of 2048 × 4096 numbers of 2 bytes
    assert linked.seconds(work) - shared.seconds(work) == pytest.approx(32 * 2 * (5e-5 + turns))


def test_more_devices_than_key_heads_hold_copies_of_them() -> None:
    assert Costs(LLAMA, ideal(), tp=8).kv_bytes_per_token == 131_072
    assert Costs(LLAMA, ideal(), tp=16).kv_bytes_per_token == 2 * 131_072


@pytest.mark.parametrize("stages, parts", [(4, 4), (4, 8), (2, 1)])
def test_a_pipeline_has_its_bubble(stages: int, parts: int) -> None:
    # GPipe: of parts + stages − 1 turns a stage works in `parts`; here only operations cost time
    fast = ideal(bandwidth=1e30)
    work = work_of(plan(*(row(0, 256, samples=False) for _ in range(8))))
    alone = Costs(LLAMA, fast).seconds(work)
    piped = Costs(LLAMA, fast, pp=stages, microbatches=parts).seconds(work)
    assert piped == pytest.approx(alone * (parts + stages - 1) / (parts * stages), rel=1e-6)


def test_a_pipeline_cannot_split_fewer_rows_than_parts() -> None:
    one = work_of(plan(row(100, 1, samples=False)))
    piped = Costs(LLAMA, ideal(), pp=4).seconds(one)
    assert piped == pytest.approx(Costs(LLAMA, ideal()).seconds(one), rel=1e-6)  # one row visits every stage in turn


@pytest.mark.parametrize("options", [{}, {"tp": 2}, {"tp": 2, "pp": 2, "microbatches": 3}])
def test_the_breakdown_adds_up_to_the_seconds(options) -> None:
    costs = Costs(LLAMA, device("h100-sxm"), **options)
    step = plan(row(0, 700), row(900, 1), row(40, 64, samples=False))
    step.copies = [BlockCopy("out", 0, 1)]
    found = costs.breakdown(work_of(step))
    assert sum(found.values()) == pytest.approx(costs.seconds(work_of(step)))
    assert (found["communication"] > 0) == bool(options) and min(found["layers"], found["attention"]) > 0


def test_a_decode_is_explained_by_its_bandwidth_and_a_prompt_by_its_operations() -> None:
    model = simulated("llama-3-8b", "h100-sxm")
    decode, prompt = model.explain(plan(row(99, 1))), model.explain(plan(row(0, 4096)))
    assert decode["mbu"] > 0.6 > 0.02 > decode["mfu"]
    assert prompt["mfu"] > 0.5 > prompt["mbu"]
    assert decode["seconds"] == model.price(plan(row(99, 1)))
