"""Checks of notebook 05: a block table read, samples counted, the smallest pool, and preemptions for nothing.

Written together with notebooks/instructor/source/05_paged_kv_cache.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.course.block_map import block_tables
from lab.course.broken import run_planted
from lab.course.broken_memory import always_wants_a_block
from lab.course.checks import Probe, exercise
from lab.memory.blocks import blocks_for
from lab.metrics import Report
from lab.request import SamplingParams
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import RequestSpec, Workload, fixed_workload

PRICES = {"step": 0.040, "token": 0.002}


def slot_of(position: int, table: Sequence[int], block_size: int) -> tuple[int, int]:
    """A solution of 05.1."""
    return table[position // block_size], position % block_size


@exercise(
    "05.1",
    "Read a block table",
    hints=(
        "Position 0 is in the first block of the table, position block_size in the second.",
        "position // block_size says which entry of the table, position % block_size which slot of that block.",
        "Return (table[position // block_size], position % block_size).",
    ),
    solution=lambda: slot_of,
    wrong={
        "as if memory were contiguous": lambda: lambda p, t, s: (t[0] + p // s, p % s),
        "the entry instead of the block": lambda: lambda p, t, s: (p // s, p % s),
        "positions counted from 1": lambda: lambda p, t, s: (t[max(0, p - 1) // s], max(0, p - 1) % s),
        "swapped": lambda: lambda p, t, s: (p % s, t[p // s]),
        "always the last block": lambda: lambda p, t, s: (t[-1], p % s),
    },
)
def block_table(answer: Any, probe: Probe) -> None:
    """answer(position, table, block_size) -> (block, slot)."""
    probe.step("it is a function")
    probe.function(answer, "slot_of")
    probe.step("positions of the first block")
    for position in (0, 1, 15):
        probe.equal(answer(position, [7, 2, 9], 16), (7, position), f"slot_of({position}, [7, 2, 9], 16)")
    probe.step("positions of later blocks, wherever these lie")
    for position, want in ((16, (2, 0)), (31, (2, 15)), (32, (9, 0)), (40, (9, 8))):
        probe.equal(answer(position, [7, 2, 9], 16), want, f"slot_of({position}, [7, 2, 9], 16)")
    probe.step("other block sizes")
    for position, size in ((0, 1), (2, 1), (5, 4), (11, 4)):
        table = [30, 10, 20]
        probe.equal(
            answer(position, table, size), slot_of(position, table, size), f"slot_of({position}, {table}, {size})"
        )
    probe.step("in the engine: no two tokens of all running requests share a slot")
    work = fixed_workload([20, 9, 33], [12, 30, 8])
    tables = block_tables(work, Priced(), 6, blocks=12, block_size=4 * 4)
    places = [answer(place, table, 16) for table in tables.values() for place in range(16 * len(table))]
    want = [slot_of(place, table, 16) for table in tables.values() for place in range(16 * len(table))]
    probe.equal(places, want, "the slots of every position of three running requests")


def sample_blocks(prompt: int, output: int, n: int, block_size: int) -> int:
    """A solution of 05.2."""
    shared = (prompt - 1) // block_size
    own = -(-(prompt + output - 1) // block_size) - shared
    return shared + n * own


def samples(prompt: Any, output: int, n: int, temperature: float = 0.0) -> Workload:
    """One prompt (its length, or its tokens), sampled n times."""
    sampling = SamplingParams(max_tokens=output, ignore_eos=True, n=n, temperature=temperature)
    return Workload(f"{n} samples", (RequestSpec(0.0, prompt, sampling),))


def counted_blocks(prompt: int, output: int, n: int, block_size: int) -> int:
    """The most blocks that the engine holds at once for them."""
    from lab.running import run

    report = run(samples(prompt, output, n), Priced(), block_size=block_size, blocks=4096, batching="continuous:64")
    return report.peak_blocks


@exercise(
    "05.2",
    "Blocks of n samples",
    hints=(
        "Blocks that hold nothing but prompt tokens are shared, all but those with the prompt's last token.",
        "The last prompt token is computed by each sample itself: (prompt - 1) // block_size blocks stay shared.",
        "A sample needs blocks for prompt + output - 1 tokens in all; those beyond the shared ones are its own.",
    ),
    solution=lambda: sample_blocks,
    wrong={
        "nothing is shared": lambda: lambda p, o, n, s: n * -(-(p + o - 1) // s),
        "everything is shared": lambda: lambda p, o, n, s: -(-(p + o - 1) // s),
        "part-filled blocks are shared too": lambda: (
            lambda p, o, n, s: -(-p // s) + n * (-(-(p + o - 1) // s) - -(-p // s))
        ),
        "the last token is computed too": lambda: (
            lambda p, o, n, s: (p - 1) // s + n * (-(-(p + o) // s) - (p - 1) // s)
        ),
        "tokens instead of blocks": lambda: lambda p, o, n, s: p + n * o,
    },
)
def shared_blocks(answer: Any, probe: Probe) -> None:
    """answer(prompt, output, n, block_size) -> blocks held at most."""
    probe.step("it is a function")
    probe.function(answer, "sample_blocks")
    probe.step("a single sample: blocks for prompt + output - 1 tokens")
    for prompt, output in ((18, 6), (16, 1), (40, 9)):
        want = blocks_for(prompt + output - 1, 16)
        probe.equal(answer(prompt, output, 1, 16), want, f"sample_blocks({prompt}, {output}, 1, 16)")
    probe.step("four samples, a prompt of 18 tokens, blocks of 4: four blocks are shared")
    probe.equal(answer(18, 6, 4, 4), 12, "sample_blocks(18, 6, 4, 4)")
    probe.step("as the engine counts them, at all edges of a block")
    for prompt, output, n, size in ((16, 8, 3, 4), (17, 8, 3, 4), (15, 30, 5, 16), (33, 16, 8, 16), (100, 24, 4, 16)):
        counted = counted_blocks(prompt, output, n, size)
        probe.equal(answer(prompt, output, n, size), counted, f"sample_blocks({prompt}, {output}, {n}, {size})")


#: Exercise 05.3: eight requests of different length; they arrive one after the other.
PROMPTS, OUTPUTS = (30, 18, 60, 25, 44, 12, 70, 33), (40, 90, 20, 64, 30, 110, 16, 50)
ARRIVALS = tuple(0.6 * i for i in range(8))


def with_blocks(blocks: int) -> Report:
    """The eight requests in a pool of that many blocks of 16 tokens."""
    from lab.running import run

    work = fixed_workload(PROMPTS, OUTPUTS, ARRIVALS)
    return run(work, Priced(**PRICES), blocks=blocks, batching="continuous:8")


def smallest_pool() -> int:
    """The answer of 05.3."""
    return next(blocks for blocks in range(8, 200) if with_blocks(blocks).preemptions == 0)


@exercise(
    "05.3",
    "The smallest pool without preemption",
    hints=(
        "A pool that holds all eight to their ends has room to spare: they do not all reach their ends together.",
        "Try with_blocks(n).preemptions for some n, and halve the gap each time.",
        "next(n for n in range(8, 200) if with_blocks(n).preemptions == 0)",
    ),
    solution=smallest_pool,
    wrong={
        "room for everybody's end": lambda: sum(
            blocks_for(p + o - 1, 16) for p, o in zip(PROMPTS, OUTPUTS, strict=True)
        ),
        "one too few": lambda: smallest_pool() - 1,
        "one too many": lambda: smallest_pool() + 1,
        "the largest request": lambda: max(blocks_for(p + o - 1, 16) for p, o in zip(PROMPTS, OUTPUTS, strict=True)),
    },
)
def smallest(answer: Any, probe: Probe) -> None:
    """answer is a number of blocks."""
    probe.step("it is a number of blocks in which the longest request fits")
    longest = max(blocks_for(p + o - 1, 16) for p, o in zip(PROMPTS, OUTPUTS, strict=True))
    probe.true(isinstance(answer, int) and not isinstance(answer, bool), "give a whole number")
    probe.true(longest <= answer <= 1000, f"between {longest} and 1000 blocks")
    probe.step("nobody is preempted")
    found = with_blocks(answer).preemptions
    probe.true(found == 0, f"with {answer} blocks there are {found} preemptions")
    probe.step("with one block less, somebody is")
    probe.true(answer == smallest_pool(), f"fewer than {answer} blocks are enough too")


def needless(trace: RunTrace, block_size: int) -> list[int]:
    """A solution of 05.4."""
    found, steps = [], list(trace)
    for before, step in zip(steps, steps[1:], strict=False):
        gone = {event.request for event in before.events if event.kind in ("finished", "preempted")}
        rows = [row for row in before.rows if row.request not in gone]
        wanted = sum((row.start + row.num_tokens) % block_size == 0 for row in rows)
        if any(event.kind == "preempted" for event in step.events) and wanted <= before.free:
            found.append(step.index)
    return found


def _every_preemption(trace: RunTrace, block_size: int) -> list[int]:
    return [step.index for step in trace if any(event.kind == "preempted" for event in step.events)]


def _blocks_left(trace: RunTrace, block_size: int) -> list[int]:
    """Only where blocks were free: the bug strikes where none is and none is needed."""
    steps = list(trace)
    return [
        step.index
        for before, step in zip(steps, steps[1:], strict=False)
        if before.free and any(event.kind == "preempted" for event in step.events)
    ]


def _after_instead_of_before(trace: RunTrace, block_size: int) -> list[int]:
    return [i for i in _every_preemption(trace, block_size) if trace[i].free]


@exercise(
    "05.4",
    "Break it: preempted for nothing",
    hints=(
        "Look at the step before: its rows say how many tokens each request has, its `free` how many blocks are left.",
        "A running request needs a block for its next token only when (row.start + row.num_tokens) % block_size == 0.",
        "A preemption is needless when the requests that go on need at most before.free blocks together. Who finished "
        "or was preempted in the step before does not go on.",
    ),
    solution=lambda: needless,
    wrong={
        "no step at all": lambda: lambda trace, size: [],
        "every preemption": lambda: _every_preemption,
        "only where blocks were free": lambda: _blocks_left,
        "looks after the step": lambda: _after_instead_of_before,
        "only the first": lambda: lambda trace, size: needless(trace, size)[:1],
    },
)
def for_nothing(answer: Any, probe: Probe) -> None:
    """answer(trace, block_size) -> list of step indices."""
    probe.step("it is a function")
    probe.function(answer, "needless")
    work = fixed_workload([20] * 6, [30, 44, 25, 50, 38, 60])
    for blocks in (12, 18):
        probe.step(f"a healthy engine with {blocks} blocks preempts only when it must")
        probe.equal(answer(tight(work, blocks).trace, 16), [], f"needless(healthy, {blocks} blocks)")
        probe.step(f"the broken engine with {blocks} blocks: exactly the steps concerned")
        trace = tight(work, blocks, always_wants_a_block).trace
        probe.equal(answer(trace, 16), needless(trace, 16), f"needless(broken, {blocks} blocks)")


def tight(work: Workload, blocks: int, plant: Any = None) -> Report:
    """A run with few blocks, healthy or with a bug."""
    options = {"blocks": blocks, "block_size": 16, "batching": "continuous:8"}
    return run_planted(work, Priced(**PRICES), plant or (lambda engine: None), **options)
