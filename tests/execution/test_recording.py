"""Recorded decode steps: the same bits as computed ones, really replayed, and nothing in them is left to torch."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace

import pytest
import torch

from lab.errors import BadRequest, BlockError, ModelError
from lab.execution.elementwise import gated, norm, rotation, take
from lab.execution.kv_cache import PagedKV
from lab.execution.linear import Linear
from lab.execution.model import Model, load_model
from lab.execution.paged_attention import PagedAttention
from lab.execution.recording import LARGEST, NotRecorded, Workspace, dense, empty, recording
from lab.execution.runner import ModelRunner
from lab.execution.weights import expected_shapes, fuse
from lab.plan import Row, StepPlan
from lab.request import Request


def replays(runner: ModelRunner) -> int:
    return sum(steps.replays for steps in runner._idle)


def recordings(runner: ModelRunner) -> set[int]:
    """Width of the block tables of every recording."""
    return {width for steps in runner._idle for width in steps._steps}


@pytest.mark.parametrize("name", ["tiny", "real"])
def test_a_replayed_step_gives_the_bits_of_a_computed_one(name, drive, random_prompt, request):
    """Requests join and leave, contexts cross blocks, and a recording made with one batch serves larger and smaller."""
    model = request.getfixturevalue(name)
    drivers = [drive(model), drive(model)]
    drivers[1].runner = ModelRunner(model, 64, graphs=False)
    lengths, stops = (3, 40, 15, 70, 31, 16, 9, 8, 7, 6, 5), (20, 5, 12, 9, 25, 14, 20, 20, 19, 3, 21)
    margins = []
    for driver in drivers:
        requests = [driver.request(i, random_prompt(length, i)) for i, length in enumerate(lengths)]
        waiting, live = list(requests), []
        while waiting or live:
            if waiting:
                live.append(waiting.pop(0))
            driver.step([driver.row(one, one.remaining) for one in live])
            for one in [one for one in live if one.num_output == stops[one.id]]:
                live.remove(one)
                driver.free += one.block_table
        margins.append([(one.output, one.margins) for one in requests])
    assert margins[0] == margins[1]
    assert recordings(drivers[0].runner) == {1, 2, 4, 8}
    assert replays(drivers[0].runner) > 20 and drivers[1].runner._idle == []


def test_what_is_recorded(tiny, drive, random_prompt):
    """Every packed step up to a size, whatever it is made of: prompts, chunks, decodes, sampled or not."""
    driver = drive(tiny, num_blocks=80)
    many = [driver.request(i, random_prompt(5, i)) for i in range(52)]
    driver.step([driver.row(one, 5) for one in many])
    assert LARGEST < 5 * 52 and replays(driver.runner) == 0 and recordings(driver.runner) == set()
    nobody = driver.request(98, random_prompt(9, 98))
    driver.step([driver.row(nobody, 4)])
    assert recordings(driver.runner) == set()  # a chunk that samples nothing is replayed, but not recorded
    driver.step([driver.row(one, 1) for one in many[:20]])
    assert recordings(driver.runner) == {1} and replays(driver.runner) == 0
    for rows in (1, 52, 9):
        driver.step([driver.row(one, 1) for one in many[:rows]])
    late = driver.request(99, random_prompt(9, 99))
    driver.step([driver.row(many[0], 1), driver.row(late, 4)])
    driver.step([driver.row(late, 1)])  # of a prompt that goes on: nobody samples
    driver.step([driver.row(late, 4), driver.row(many[3], 1)])
    assert recordings(driver.runner) == {1} and replays(driver.runner) == 6
    wanted = drive(tiny).generate([random_prompt(9, 99), random_prompt(5, 0)], 8)
    assert late.output == wanted[0][:1] and many[0].output == wanted[1][: many[0].num_output]


def test_the_largest_step_and_the_next_larger_one(tiny, drive, random_prompt):
    """Chunks of LARGEST tokens are replayed, one token more is not; both give the same."""
    prompt = random_prompt(3 * LARGEST + 9)
    wanted, chunks = drive(tiny, "reference").generate([prompt], 2), (LARGEST, LARGEST + 1, LARGEST - 1)
    for chunk in chunks:
        driver = drive(tiny)
        assert driver.generate([prompt], 2, chunk=chunk) == wanted
        assert replays(driver.runner) > 0
        if chunk > LARGEST:
            assert recordings(driver.runner) == {64}


def test_a_replay_does_not_enter_the_layers(tiny, drive, random_prompt, monkeypatch):
    wanted = drive(tiny).generate([random_prompt(5)], 3)[0]
    driver = drive(tiny)
    one = driver.request(0, random_prompt(5))
    driver.step([driver.row(one, 5)])
    driver.step([driver.row(one, 1)])
    monkeypatch.setattr(Linear, "__call__", None)
    driver.step([driver.row(one, 1)])
    assert one.output == wanted


def test_attention_is_cut_anew_for_every_replay(tiny, drive, random_prompt, monkeypatch):
    """The longest contexts first; two key/value heads are two units of a row."""
    works = []
    prepare = PagedAttention.prepare

    def noted(self, *arguments):
        works.append(prepare(self, *arguments))
        return works[-1]

    monkeypatch.setattr(PagedAttention, "prepare", noted)
    driver = drive(tiny)
    short, long, middle = (driver.request(i, random_prompt(n, i)) for i, n in enumerate((5, 60, 30)))
    driver.step([driver.row(one, one.remaining) for one in (short, long, middle)])
    for order, places in (
        ((short, long, middle), [1, 1, 2, 2, 0, 0]),
        ((long, short, middle), [0, 0, 2, 2, 1, 1]),
        ((middle, long), [1, 1, 0, 0]),
    ):
        driver.step([driver.row(one, 1) for one in order])
        assert works[0].units[: len(places), 1].tolist() == places
    assert len(works) == 1


def test_threads_that_compute_at_the_same_time_have_recordings_of_their_own(tiny, drive, random_prompt):
    prompts = [random_prompt(20, 0), random_prompt(33, 1)]
    wanted = [drive(tiny).generate([prompt], 40)[0] for prompt in prompts]
    driver, barrier, failed = drive(tiny), threading.Barrier(2), []

    def lane(index: int) -> None:
        try:
            one = driver.request(index, prompts[index])
            one.block_table = list(range(8 * index, 8 * index + 8))
            with driver.runner.lane(index, 2):
                while one.num_output < 40:
                    barrier.wait(20)
                    driver.step([driver.row(one, one.remaining)])
            assert one.output == wanted[index]
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=lane, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len(driver.runner._idle) == 2
    memory = [{step.logits.data_ptr() for step in steps._steps.values()} for steps in driver.runner._idle]
    assert memory[0] and memory[1] and not memory[0] & memory[1]


def test_a_step_that_fails_leaves_the_recordings_usable(tiny, drive, random_prompt):
    prompt = random_prompt(5)
    wanted = drive(tiny).generate([prompt], 6)[0]
    driver = drive(tiny)
    one = driver.request(0, prompt)
    driver.step([driver.row(one, 5)])
    for count in range(1, 6):
        with pytest.raises(BadRequest, match="token id 512"):
            driver.runner.run(StepPlan([Row(Request(7, [512], block_table=[60]), 0, 1, True)]))
        with pytest.raises(BlockError, match="needs 2 blocks"):
            driver.runner.run(StepPlan([Row(Request(8, [1] * 20, block_table=[60]), 19, 1, True)]))
        driver.step([driver.row(one, 1)])
        assert one.num_output == count + 1
    assert one.output == wanted and len(driver.runner._idle) == 1


def model_of(tiny, **sizes) -> Model:
    """`tiny` in another shape."""
    config = replace(tiny.config, **sizes)
    draw = torch.Generator().manual_seed(7)
    tensors = {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=draw) * shape[1] ** -0.5
        for name, shape in expected_shapes(config).items()
    }
    return Model("odd", config, fuse(config, tensors, "fp32"), tiny.tokenizer, ())


@pytest.mark.parametrize(
    "sizes",
    [{"head_dim": 12, "num_kv_heads": 1}, {"intermediate_size": 40}, {"vocab_size": 500}],
    ids=["qkv", "gate_up", "vocabulary"],
)
@pytest.mark.parametrize("first", [1, 2])
def test_products_that_fill_no_panel_are_right_whatever_came_first(tiny, drive, random_prompt, sizes, first):
    """With a single row the columns beyond the last output cannot be seen in a tensor's strides."""
    model = model_of(tiny, **sizes)
    results = []
    for graphs in (True, False):
        driver = drive(model)
        driver.runner = ModelRunner(model, 64, graphs=graphs)
        requests = [driver.request(i, [token % 500 for token in random_prompt(3, i)]) for i in range(3)]
        driver.step([driver.row(one, 3) for one in requests[:first]])
        driver.step([driver.row(one, one.remaining) for one in requests])
        driver.step([driver.row(one, one.remaining) for one in requests])
        results.append([(one.output, one.margins) for one in requests])
    assert results[0] == results[1]


def test_a_row_without_tokens_does_not_shift_the_rows_of_others(tiny, batch_logits, random_prompt):
    """Two tokens and none make two rows too."""
    prompt = random_prompt(2)
    rows = [Row(Request(0, prompt, block_table=[3]), 0, 2, True), Row(Request(1, random_prompt(5)), 5, 0, False)]
    alone = batch_logits(tiny, rows[:1], "reference", PagedKV(tiny.config, 8, 16))
    assert (batch_logits(tiny, rows, "paged_cpu", PagedKV(tiny.config, 8, 16)) - alone).abs().max() < 5e-4


def test_a_runner_that_recorded_is_freed_with_its_pool(tiny, drive, random_prompt):
    driver = drive(tiny)
    driver.generate([random_prompt(5)], 3)
    assert replays(driver.runner) > 0
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(driver.runner)
        driver.runner = None
        assert gone() is None
    finally:
        gc.enable()


def test_a_step_recorded_in_inference_mode_is_replayed_outside(tiny, drive, random_prompt):
    driver, prompt = drive(tiny), random_prompt(5)
    wanted = drive(tiny).generate([prompt], 4)[0]
    one = driver.request(0, prompt)
    with torch.inference_mode():
        driver.step([driver.row(one, 5)])
    for _ in range(3):
        driver.step([driver.row(one, 1)])
    assert one.output == wanted and replays(driver.runner) == 3


def test_models_whose_steps_are_not_all_jobs_are_computed_as_before(drive, llama_folder, random_prompt):
    model = load_model(llama_folder("gqa"))  # 48 numbers to a token fill no panel
    driver = drive(model)
    tokens = driver.generate([random_prompt(9)], 5)
    assert not driver.runner._records and replays(driver.runner) == 0
    reference = drive(model, "reference")
    assert tokens == reference.generate([random_prompt(9)], 5)


def test_what_torch_would_compute_is_refused_while_recording():
    x = torch.ones(4, 64)
    work = [
        lambda: dense(x.T),
        lambda: Linear(torch.ones(64, 64), torch.ones(64))(x),
        lambda: Linear(torch.ones(64, 64), way="plain")(x),
        lambda: Linear(torch.ones(40, 64))(x, torch.ones(4, 40)),
        lambda: norm(x.double(), x[0].double(), 1e-5),
        lambda: empty(LARGEST + 1, 3),
    ]
    for one in work:
        with pytest.raises(NotRecorded), recording(Workspace()):
            one()
        one() if one is not work[-1] else None  # outside nobody minds


def test_memory_is_used_again_within_a_recording_and_by_the_next_one():
    workspace = Workspace()
    with recording(workspace):
        first, other = empty(3, 8), empty(3, 8)
        kept = first.view(3, 2, 4)[:, 1:]
        places = first.data_ptr(), other.data_ptr()
        del first
        assert empty(3, 8).data_ptr() not in places  # a view of the first is still there
        del kept
        assert empty(2, 4, 2).data_ptr() == places[0]
    with recording(workspace):
        again = {empty(64, 8).data_ptr(), *(tensor.data_ptr() for tensor in [empty(1, 8)])}
        assert again <= {piece.ctypes.data for piece in workspace._all[8]}
    assert sum(map(len, workspace._all.values())) == 3


def test_a_replay_computes_what_lies_in_the_memory_now_for_any_number_of_rows():
    torch.manual_seed(0)
    weight, gain, x = Linear(torch.randn(96, 64)), torch.rand(64), torch.randn(LARGEST, 64)
    with recording(Workspace()) as jobs:
        result = gated(weight(norm(x[:3], gain, 1e-5)))
    jobs.close()
    whole = result.as_strided((LARGEST, 48), (48, 1))
    for rows in (2, 3, LARGEST, 1):
        x.copy_(torch.randn(LARGEST, 64))
        jobs.replay(rows, 0)
        assert torch.equal(whole[:rows], gated(weight(norm(x[:rows], gain, 1e-5))))


def test_take_and_rotation_are_those_of_torch():
    torch.manual_seed(1)
    table, ids = torch.randn(50, 24), torch.randint(0, 50, (70,))
    assert torch.equal(take(table, ids), table[ids]) and take(table, ids[:0]).shape == (0, 24)
    for wrong in (-1, 50):
        with pytest.raises(ModelError, match=f"{wrong} in a table of 50|from {wrong} to"):
            take(table, torch.tensor([3, wrong]))
    positions, frequencies = torch.tensor([0, 1, 17, 8191]), torch.rand(32)
    angles = positions.float()[:, None, None] * frequencies
    cos, sin = rotation(positions, frequencies)
    assert cos.shape == (4, 1, 32)
    assert torch.allclose(cos, angles.double().cos().float(), atol=1e-6)
    assert torch.allclose(sin, angles.double().sin().float(), atol=1e-6)
