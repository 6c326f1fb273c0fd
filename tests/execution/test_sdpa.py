"""Long rows are cut into pieces: the same logits, and no piece looks at keys that none of its tokens sees."""

from __future__ import annotations

import pytest
import torch

from lab.execution import sdpa
from lab.execution.attention import make_attention
from lab.execution.inputs import build_inputs
from lab.plan import Row, StepPlan
from lab.request import Request


@pytest.mark.parametrize("piece", [1, 7, 16])
@pytest.mark.parametrize("chunk", [None, 23])
def test_pieces_give_the_logits_of_the_whole(tiny, piece, chunk, prompt_logits, random_prompt, tolerance, monkeypatch):
    prompt = random_prompt(50)
    wanted = prompt_logits(tiny, prompt, "reference")
    monkeypatch.setattr(sdpa, "PIECE", piece)
    assert (prompt_logits(tiny, prompt, "sdpa", chunk) - wanted).abs().max() < tolerance


def test_a_piece_gathers_only_what_its_last_token_sees(random_prompt, monkeypatch):
    """Tokens 20 to 39 of a request and 3 of padding, in pieces of 8: contexts end at 28, 36, 40."""
    monkeypatch.setattr(sdpa, "PIECE", 8)
    row = Row(Request(0, random_prompt(40), block_table=[4, 1, 2]), 20, 20, False, padding=3)
    inputs = build_inputs(StepPlan([row]), 16, 8)
    work = make_attention("sdpa").prepare(inputs, 2, 16)
    assert [(piece.first, piece.stop, piece.context) for piece in work.pieces] == [
        (0, 8, 28),
        (8, 16, 36),
        (16, 23, 40),
    ]
    assert [piece.table.tolist() for piece in work.pieces] == [[4, 1], [4, 1, 2], [4, 1, 2]]


def test_single_tokens_of_a_mixed_step_gather_no_further_than_the_longest_of_them(random_prompt):
    rows = [
        Row(Request(0, random_prompt(90), block_table=[0, 1, 2, 3, 4, 5]), 0, 90, False),
        Row(Request(1, random_prompt(20), block_table=[6, 7]), 19, 1, True),
    ]
    work = make_attention("sdpa").prepare(build_inputs(StepPlan(rows), 16, 8), 2, 16)
    assert work.singles.tolist() == [90] and work.tables.tolist() == [[6, 7]]
    assert torch.equal(work.mask.flatten(), torch.arange(32) < 20)
