"""What decodes cost that ride along with a prompt chunk, measured on the real model. For notebook 07."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from lab.course.stalls import numbered
from lab.execution.model import Model
from lab.memory.blocks import blocks_for
from lab.plan import Row, StepPlan
from lab.request import Request

BLOCK_SIZE = 16


class MixedStep(NamedTuple):
    """Median milliseconds of one kind of step."""

    name: str
    tokens: int
    step_ms: float


def piggyback(model: Model, chunk: int = 128, decodes: int = 6, context: int = 64, repeats: int = 7) -> list[MixedStep]:
    """Three steps: a chunk alone, decodes alone, and a chunk with decodes in the same number of tokens.

    They take turns, so that a noisy moment hits all of them; one untimed turn goes first. The decodes' keys and values
    are the zeros of a fresh pool, which cost as much to read as any.
    """
    need = blocks_for(context + 1, BLOCK_SIZE)
    runner = model.runner(blocks_for(chunk, BLOCK_SIZE) + decodes * need, BLOCK_SIZE)
    prompt = Request(0, numbered(chunk), block_table=list(range(blocks_for(chunk, BLOCK_SIZE))))
    readers = []
    for place in range(decodes):
        first = len(prompt.block_table) + place * need
        readers.append(Request(place + 1, [1] * (context + 1), num_computed=context))
        readers[-1].block_table = list(range(first, first + need))
    decode_rows = [Row(request, context, 1, samples=True) for request in readers]
    kinds = {
        f"{chunk} prompt tokens": [Row(prompt, 0, chunk, samples=False)],
        f"{decodes} decodes": decode_rows,
        f"{chunk - decodes} prompt tokens + {decodes} decodes": [
            *decode_rows,
            Row(prompt, 0, chunk - decodes, samples=False),
        ],
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(repeats + 1):
        for name, rows in kinds.items():
            taken = runner.run(StepPlan(list(rows))).seconds
            if turn:
                seconds[name].append(taken)
    return [
        MixedStep(name, sum(row.num_tokens for row in kinds[name]), 1e3 * median(values))
        for name, values in seconds.items()
    ]
