"""Measured splits: what is computed, never how fast."""

import pytest

from lab.cluster import measured
from lab.cluster.measured import measure
from lab.errors import BadPolicy
from lab.execution.model import load_model

BOOK = [6000, 2000, 6000, 2000, 2000, 2000]


@pytest.fixture
def plans(monkeypatch):
    """Every plan that is run, in order."""
    model, seen = load_model("tiny"), []
    runner = model.runner

    def spied(*args, **kwargs):
        made = runner(*args, **kwargs)
        run = made.run
        made.run = lambda plan: (seen.append(plan), run(plan))[1]
        return made

    monkeypatch.setattr(type(model), "runner", lambda self, *args, **kwargs: spied(*args, **kwargs))
    return model, seen


def test_splits_and_their_seconds(plans):
    model, seen = plans
    splits = measure(model, BOOK, 2, ("fifo", "lpt", "bucketed"), scale=200, repeats=2)
    assert set(splits) == {(k, s) for k in ("varlen", "padded") for s in ("fifo", "lpt", "bucketed")}
    for split in splits.values():
        assert sorted(tokens for device in split.assignment for tokens in device) == [10, 10, 10, 10, 30, 30]
        assert split.critical_path == max(split.seconds) and split.total == sum(split.seconds)
        assert all(seconds > 0 for seconds in split.seconds)
    assert splits["varlen", "fifo"].assignment == [[30, 10, 30], [10, 10, 10]]
    assert len(seen) == 3 * 10  # five different groups of prompts per kernel; one untimed turn and two timed ones


def test_the_padded_kernel_computes_a_rectangle_and_the_other_does_not(plans):
    model, seen = plans
    measure(model, [40, 10], 1, ("fifo",), repeats=1)
    for plan in seen:
        kind = {"packed": (50, 0), "padded": (50, 30)}[plan.attention]
        assert (plan.num_tokens, plan.num_padding) == kind
        tables = [block for row in plan.rows for block in row.request.block_table]
        assert len(tables) == len(set(tables)) and all(row.samples for row in plan.rows)


def test_a_device_without_prompts_takes_no_time():
    (split,) = measure(load_model("tiny"), [20], 2, ("fifo",), ("varlen",), repeats=1).values()
    assert split.assignment in ([[20], []], [[], [20]]) and min(split.seconds) == 0.0


@pytest.mark.parametrize("options", [{"repeats": 0}, {"scale": 0}])
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(BadPolicy, match="both must be at least 1"):
        measure(load_model("tiny"), [20], **options)


def test_every_kernel_has_an_attention():
    assert set(measured.ATTENTION) == set(measured.KERNELS)
