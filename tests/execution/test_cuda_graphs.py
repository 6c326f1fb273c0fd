"""Graphs and swapping without a GPU: buckets, what is copied in, what is replayed, and who waits for whom."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pytest
import torch
from flash_reference import flash_attn_varlen_func

from lab.execution import runner
from lab.execution.cuda_cache import DeviceKV
from lab.execution.cuda_graphs import BUCKETS, DecodeGraphs, Shape, bucket_for
from lab.execution.cuda_inputs import pad_decodes
from lab.execution.flash_attention import FlashAttention
from lab.execution.inputs import build_inputs
from lab.execution.kv_cache import PagedKV
from lab.plan import BlockCopy, Row, StepPlan
from lab.request import Request

CPU = torch.device("cpu")


class FakeCapture:
    """As a CUDA graph: replaying runs the recorded work again on the same memory, and nothing else is looked at."""

    def __init__(self):
        self.recorded = 0

    def __call__(self, work):
        self.recorded += 1
        result = work()

        @torch.inference_mode()
        def replay():
            result.copy_(work())

        return replay, result


def decodes(count, context=20, tokens=1, samples=True) -> StepPlan:
    requests = [Request(i, [1] * context, block_table=[2 * i, 2 * i + 1]) for i in range(count)]
    return StepPlan([Row(request, context - tokens, tokens, samples) for request in requests])


def test_buckets_are_dense_where_padding_costs_most():
    assert BUCKETS[:7] == (1, 2, 4, 8, 16, 24, 32) and BUCKETS[-1] == 256
    chosen = {rows: bucket_for(rows) for rows in (1, 2, 3, 5, 8, 9, 17, 25, 33, 256)}
    assert chosen == {1: 1, 2: 2, 3: 4, 5: 8, 8: 8, 9: 16, 17: 24, 25: 32, 33: 40, 256: 256}
    assert bucket_for(257) is None


@pytest.fixture
def graphs():
    seen = []

    def forward(inputs):
        seen.append(inputs)
        return torch.stack((inputs.token_ids, inputs.positions, inputs.visible), dim=1).float()

    made = DecodeGraphs(forward, CPU, 16, lambda width: 4, capture=FakeCapture())
    made.seen = seen
    return made


def test_one_graph_per_bucket_serves_every_batch_that_fits(graphs):
    for count, context in ((3, 20), (4, 25), (3, 31), (5, 20), (8, 30)):
        inputs = build_inputs(decodes(count, context), 16, 64)
        logits = graphs.run(inputs)
        assert logits.shape[0] == count
        assert logits[:, 1].tolist() == [context - 1] * count  # of this step, not of the one that was recorded
        assert logits[:, 2].tolist() == [context] * count
    assert {shape: graph.replays for shape, graph in graphs.captured.items()} == {Shape(4, 4): 3, Shape(8, 4): 2}
    assert graphs.capture.recorded == 2


def test_a_graph_reads_the_same_memory_in_every_replay(graphs):
    for context in (20, 25):
        graphs.run(build_inputs(decodes(3, context), 16, 64))
    recorded, *replayed = graphs.seen
    flat = graphs.captured[Shape(4, 4)].flat
    for inputs in replayed:
        assert inputs is recorded
    for name in ("token_ids", "positions", "visible", "blocks", "slots", "tables", "last"):
        tensor = getattr(recorded, name)
        assert tensor.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_padding_rows_write_to_the_scratch_block_and_see_one_slot_of_it():
    padded = pad_decodes(build_inputs(decodes(3), 16, 64), 8, 4, 16)
    assert padded.blocks.tolist() == [1, 3, 5] + [64] * 5
    assert padded.visible.tolist() == [20] * 3 + [1] * 5
    assert padded.tables[:3].tolist() == [[0, 1, 64, 64], [2, 3, 64, 64], [4, 5, 64, 64]]
    assert set(padded.tables[3:].flatten().tolist()) == {64}
    assert padded.contexts == [64] * 8 and padded.row_starts == list(range(9))


@pytest.mark.parametrize(
    "plan",
    [
        decodes(2, tokens=2),  # a prompt chunk
        decodes(2, samples=False),  # a chunk of one token, whose logits nobody wants
        StepPlan([*decodes(1).rows, Row(Request(9, [1] * 3), 3, 0, False, 1)]),  # a finished row
        decodes(257, context=1),
    ],
)
def test_other_steps_have_no_graph(graphs, plan):
    assert graphs.run(build_inputs(plan, 16, 1000)) is None
    assert not graphs.captured


@pytest.mark.parametrize("backend", ["sdpa", "flash"])
def test_the_runner_with_graphs_gives_the_tokens_of_paged_cpu(backend, tiny, drive, random_prompt):
    """Requests join and leave, so batch sizes change; prompts and chunks go the ordinary way."""
    block = 256 if backend == "flash" else 16
    prompts = [random_prompt(length, seed) for seed, length in enumerate((3, 15, 70, 40, 16))]
    stops = (4, 9, 6, 9, 18)
    wanted = [drive(tiny).generate([prompt], stop)[0] for prompt, stop in zip(prompts, stops, strict=True)]
    driver = drive(tiny, "sdpa", block_size=block, num_blocks=40)
    if backend == "flash":
        driver.runner.packed = FlashAttention(flash_attn_varlen_func)
    driver.runner.use_graphs(capture=FakeCapture())
    waiting = [driver.request(i, prompt) for i, prompt in enumerate(prompts)]
    live, requests = [], list(waiting)
    while waiting or live:
        live += waiting[:1]
        del waiting[:1]
        driver.step([driver.row(request, min(request.remaining, 32)) for request in live])
        for request in [request for request in live if request.num_output == stops[request.id]]:
            live.remove(request)
            driver.free += request.block_table  # whoever takes them next must not be disturbed by padding
    assert [request.output for request in requests] == wanted
    graphs = driver.runner.graphs()
    assert {shape.rows for shape, graph in graphs.captured.items() if graph.replays} >= {1, 2, 4}
    if backend == "flash":
        assert [shape.rows for shape in graphs.captured] == [1, 2, 4, 8, 16, 24, 32]  # recorded ahead, none later
    assert sum(graph.replays for graph in graphs.captured.values()) >= 8
    widths = {shape.width for shape, graph in graphs.captured.items() if graph.replays}
    assert widths == {16} if backend == "flash" else widths <= {1, 2, 4, 8} and len(widths) > 1


def test_lanes_do_not_share_the_memory_of_a_graph(tiny, drive, random_prompt, monkeypatch):
    """Two streams take turns; each has its own graphs, and both give the tokens of one."""
    prompt = random_prompt(20)
    wanted = drive(tiny).generate([prompt], 8)
    driver = drive(tiny, "sdpa")
    driver.runner.use_graphs(capture=FakeCapture())
    turns = iter(range(100))
    monkeypatch.setattr(runner, "stream_id", lambda device: next(turns) % 2)
    assert driver.generate([prompt], 8) == wanted
    graphs = driver.runner._graphs
    memory = {graph.flat.data_ptr() for made in graphs.values() for graph in made.captured.values()}
    assert set(graphs) == {0, 1} and len(memory) == sum(len(made.captured) for made in graphs.values()) > 1


class Diary:
    """Streams that note who was told to wait; `side` work is done at once, as if the GPU were infinitely fast."""

    def __init__(self):
        self.notes = []

    @contextmanager
    def on_side(self):
        self.notes.append("side:")
        yield
        self.notes.append("main:")

    def __getattr__(self, name):
        return lambda *staging: self.notes.append(name)


def caches(tiny, **options):
    made = [kind(tiny.config, 8, 4, num_host_blocks=4, **options) for kind in (PagedKV, DeviceKV)]
    torch.manual_seed(0)
    for pool in ("keys", "values"):
        getattr(made[0], pool).normal_()
        getattr(made[1], pool).copy_(getattr(made[0], pool))
    return made


def test_a_gpu_pool_moves_the_same_blocks(tiny):
    plain, device = caches(tiny)
    generator = random.Random(0)
    for _ in range(40):
        copies = []
        for _ in range(generator.randrange(6)):
            kind = generator.choice(("copy", "out", "in"))
            source = generator.randrange(4 if kind == "in" else 8)
            copies.append(BlockCopy(kind, source, generator.randrange(4 if kind == "out" else 8)))
        for cache in (plain, device):
            cache.apply(copies)
        assert torch.equal(plain.keys, device.keys) and torch.equal(plain.values, device.values)


def test_swapping_out_waits_for_the_step_before_and_holds_nobody_up(tiny):
    _, cache = caches(tiny)
    cache.streams = Diary()
    cache.apply([BlockCopy("out", 1, 0), BlockCopy("out", 2, 1)])
    assert cache.streams.notes == ["side_waits", "side:", "used_by_side", "used_by_side", "main:"]


def test_swapping_in_goes_behind_earlier_swaps_and_the_step_waits_for_it(tiny):
    _, cache = caches(tiny)
    cache.streams = Diary()
    cache.apply([BlockCopy("in", 0, 5)])
    assert cache.streams.notes == ["side:", "main:", "main_waits", "used_by_main"]


def test_a_block_swapped_out_may_be_overwritten_at_once(tiny):
    """The staging copy is made before anything else can happen to the block, however late the side stream is."""
    _, cache = caches(tiny)
    wanted = cache.keys[:, 3].clone()
    late = []

    class Late(Diary):
        @contextmanager
        def on_side(self):
            host, cache.host = cache.host, _Recorder(cache.host, late)
            yield
            cache.host = host

    cache.streams = Late()
    cache.apply([BlockCopy("out", 3, 2)])
    cache.keys[:, 3] = 0  # the step goes on
    for copy in late:
        copy()
    assert torch.equal(cache.host[2, 0], wanted)


class _Recorder:
    """A host store whose copies are only noted."""

    def __init__(self, host, late):
        self.host, self.late = host, late

    def __getitem__(self, block):
        target, late = self.host[block], self.late

        class Slot:
            def copy_(self, staging, non_blocking):
                assert non_blocking and target.is_contiguous() and staging.is_contiguous()
                late.append(lambda: target.copy_(staging))

        return Slot()
