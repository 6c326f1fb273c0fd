"""The promise of the whole package, on real tensors: no policy changes a token.

Every run is compared with the same requests one at a time, through `same_tokens`: a difference counts unless the
reference's two best logits are closer than the measured tolerance. Counters show that each case did what it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from lab.execution.model import Model, load_model  # noqa: E402
from lab.metrics import Report  # noqa: E402
from lab.running import LOGIT_TOLERANCE, run, same_tokens  # noqa: E402
from lab.setup.paths import model_dir  # noqa: E402
from lab.workload import Workload, chat_prompts, fixed_workload  # noqa: E402

BS = 8
SOLO = dict(batching="continuous:1", chunking="whole", clock="virtual")


def prompt(length: int, seed: int) -> tuple[int, ...]:
    return tuple((seed * 89 + place * place * 31 + place * 7) % 250 for place in range(length))


def work_of(lengths: list[int], outputs: list[int], seeds: list[int] | None = None) -> Workload:
    seeds = seeds or list(range(len(lengths)))
    return fixed_workload([prompt(*pair) for pair in zip(lengths, seeds, strict=True)], outputs)


#: Prompts around every block boundary, and one of several blocks.
LENGTHS, OUTPUTS = [BS - 1, BS, BS + 1, 2 * BS - 1, 2 * BS, 2 * BS + 1, 30], [9, 8, 2, 7, 12, 1, 10]
WORK = work_of(LENGTHS, OUTPUTS)
TINY_POOL = 6  # blocks: what the longest request needs, and one


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load_model("tiny")


@pytest.fixture(scope="session")
def solo(tiny: Model) -> Report:
    return run(WORK, tiny, block_size=BS, **SOLO)


def largest_step(report: Report) -> int:
    return max(step.computed for step in report.trace)


#: name -> options, and what the counters must say so that the case is about what its name promises
CASES: dict[str, tuple[dict, Callable[[Report], bool]]] = {
    "static": (dict(batching="static:4"), lambda r: r.padded_tokens > 0 and r.wasted_slots > 0),
    "static, packed": (
        dict(batching="static:4", attention="packed"),
        lambda r: r.padded_tokens == r.wasted_slots > 0,
    ),
    "static in chunks": (
        dict(batching="static:4", chunking="budget:16"),
        lambda r: r.padded_tokens > 0 and largest_step(r) == 16,
    ),
    "static, tiny pool": (
        dict(batching="static:4", blocks=TINY_POOL),
        lambda r: r.preemptions > 0 and r.recomputed_tokens > 0 and r.padded_tokens > 0,
    ),
    "continuous": (
        dict(batching="continuous:7"),
        lambda r: r.padded_tokens == r.wasted_slots == 0 and r.mean_batch > 3,
    ),
    "continuous, padded": (dict(batching="continuous:4", attention="padded"), lambda r: r.padded_tokens > 0),
    "continuous, whole prompts": (dict(chunking="whole"), lambda r: largest_step(r) > 100),
    "budget 1": (dict(chunking="budget:1"), lambda r: r.steps == r.computed_tokens and largest_step(r) == 1),
    "budget 7": (dict(chunking="budget:7"), lambda r: largest_step(r) == 7),
    "budget 16": (dict(chunking="budget:16"), lambda r: largest_step(r) == 16),
    "budget 64": (dict(chunking="budget:64"), lambda r: largest_step(r) == 64),
    "budget above all": (dict(chunking="budget:5000"), lambda r: largest_step(r) > 100),
    "tiny pool": (
        dict(blocks=TINY_POOL),
        lambda r: r.preemptions > 0 and r.recomputed_tokens == r.dropped_tokens > 0,
    ),
    "tiny pool, budget 7": (
        dict(block_size=4, blocks=10, chunking="budget:7"),
        lambda r: r.preemptions > 0 and largest_step(r) == 7,
    ),
    "tiny pool, padded": (
        dict(blocks=TINY_POOL, attention="padded"),
        lambda r: r.preemptions > 0 and r.padded_tokens > 0,
    ),
    "blocks of 1": (dict(block_size=1), lambda r: r.kv_waste == 0),
    "blocks of 16": (dict(block_size=16), lambda r: r.kv_waste > 0),
}


@pytest.mark.parametrize("case", CASES)
def test_batched_tokens_are_solo_tokens(case: str, tiny: Model, solo: Report) -> None:
    options, counters = CASES[case]
    report = run(WORK, tiny, clock="virtual", check=True, **({"block_size": BS} | options))
    assert report.finished == len(WORK) and [len(out) for out in report.outputs.values()] == OUTPUTS
    assert counters(report), report.summary()
    assert report.computed_tokens == solo.computed_tokens + report.dropped_tokens
    verdict = same_tokens(solo, report)
    assert verdict.verdict != "no", str(verdict)


def test_solo_is_solo(solo: Report) -> None:
    assert all(len(step.rows) == 1 for step in solo.trace) and solo.preemptions == solo.padded_tokens == 0
    assert len({tuple(output) for output in solo.outputs.values()}) == len(WORK)  # no constant model


def test_the_comparison_can_fail(tiny: Model, solo: Report) -> None:
    other = run(work_of([*LENGTHS[:-1], 29], OUTPUTS), tiny, **SOLO)
    assert same_tokens(solo, other).verdict == "no"


@pytest.mark.parametrize("attention", ["packed", "padded"])
@pytest.mark.parametrize("budget", [1, BS - 1, BS, BS + 1, 44, 45, 46])
def test_pitfall_11_masks_and_positions_at_every_chunk_offset(budget: int, attention: str, tiny: Model) -> None:
    work = work_of([45], [6])
    reference = run(work, tiny, block_size=BS, **SOLO)
    report = run(work, tiny, chunking=f"budget:{budget}", attention=attention, block_size=BS, clock="virtual")
    assert report.steps == -(-45 // budget) + 5
    verdict = same_tokens(reference, report)
    assert verdict.verdict != "no", str(verdict)


@pytest.mark.parametrize("attention", ["packed", "padded"])
def test_pitfall_28_padding_does_not_leak(attention: str, tiny: Model) -> None:
    """A short row beside a long one, and beside a finished one, is the row alone."""
    short, mates = work_of([3], [12]), work_of([3, 40, 20], [12, 2, 1])
    alone = run(short, tiny, block_size=BS, **SOLO)
    report = run(mates, tiny, batching="static:3", attention=attention, block_size=BS, clock="virtual")
    assert report.wasted_slots == 10 + 11
    assert report.padded_tokens == (37 + 20 if attention == "padded" else 0) + 21
    assert same_tokens(alone, report).verdict != "no"


@pytest.mark.parametrize("attention", ["packed", "padded"])
def test_pitfall_30_neighbours_contents_change_no_bit(attention: str, tiny: Model) -> None:
    """Same shapes, lengths and block ids: margins of the watched request are equal to the last bit."""
    margins, tokens = [], []
    for seeds in ([5, 1, 2], [5, 11, 12]):
        work = work_of([13, 13, 30], [9, 9, 9], seeds)
        report = run(work, tiny, chunking="budget:20", attention=attention, block_size=BS, clock="virtual")
        margins.append(report.times[0].margins)
        tokens.append(report.outputs)
    assert margins[0] == margins[1] and len(margins[0]) == 9
    assert tokens[0][0] == tokens[1][0] and tokens[0][1] != tokens[1][1]  # and the neighbours did differ


def test_pitfall_31_margins_agree_within_the_named_tolerance(tiny: Model, solo: Report) -> None:
    worst = 0.0
    for options in (dict(batching="static:4"), dict(chunking="budget:7"), dict(blocks=TINY_POOL)):
        report = run(WORK, tiny, block_size=BS, clock="virtual", **options)
        for id, times in solo.times.items():
            assert len(times.margins) == len(times.output)
            if times.output == report.times[id].output:
                pairs = zip(times.margins, report.times[id].margins, strict=True)
                worst = max(worst, *(abs(a - b) for a, b in pairs))
    assert worst <= 2 * LOGIT_TOLERANCE, worst


def sampled(work: Workload, temperature: float = 1.0, seed: int = 0) -> Workload:
    specs = tuple(replace(s, sampling=replace(s.sampling, temperature=temperature, seed=seed)) for s in work.specs)
    return replace(work, specs=specs)


@pytest.mark.parametrize(
    "options",
    [dict(batching="static:4"), dict(chunking="budget:7"), dict(blocks=TINY_POOL), dict(attention="padded")],
    ids=str,
)
def test_pitfall_32_noise_does_not_depend_on_the_batch(options: dict, tiny: Model) -> None:
    work = sampled(WORK)
    reference = run(work, tiny, block_size=BS, **SOLO)
    report = run(work, tiny, block_size=BS, clock="virtual", **options)
    verdict = same_tokens(reference, report)
    assert verdict.verdict != "no", str(verdict)


def test_pitfall_32_noise_depends_on_seed_request_and_position(tiny: Model) -> None:
    twins = work_of([12, 12], [16, 16], seeds=[3, 3])
    report = run(sampled(twins, 2.0), tiny, block_size=BS, clock="virtual")
    assert report.outputs[0] != report.outputs[1]  # two requests with one seed and one prompt share no noise
    assert len(set(report.outputs[0])) > 4  # each position draws anew
    other = run(sampled(twins, 2.0, seed=1), tiny, block_size=BS, clock="virtual")
    assert other.outputs[0] != report.outputs[0]
    assert run(sampled(twins, 2.0), tiny, block_size=BS, clock="virtual").outputs == report.outputs


def test_pitfall_32_neighbours_seeds_do_not_matter(tiny: Model) -> None:
    outputs = []
    for seed in (1, 2):
        work = sampled(work_of([12, 9, 15], [12, 12, 12]))
        others = tuple(replace(s, sampling=replace(s.sampling, seed=seed)) for s in work.specs[1:])
        report = run(replace(work, specs=(work.specs[0], *others)), tiny, block_size=BS, clock="virtual")
        outputs.append(report.outputs)
    assert outputs[0][0] == outputs[1][0] and outputs[0][1] != outputs[1][1]


# -- the default model -------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def real() -> Model:
    folder = model_dir()
    if not (folder / "config.json").is_file():
        pytest.skip(f"no default model in {folder}: run `python3 -m lab --setup-only`")
    return load_model(folder)


@pytest.fixture(scope="session")
def real_work() -> Workload:
    texts = sorted(chat_prompts(), key=lambda entry: (len(entry[0]), entry[0]))[:4]
    return fixed_workload(
        [text for text, _ in texts],
        [min(limit, clear) for limit, (_, clear) in zip((6, 7, 2, 4), texts, strict=True)],
        ignore_eos=False,
    )


@pytest.fixture(scope="session")
def real_solo(real: Model, real_work: Workload) -> Report:
    return run(real_work, real, **SOLO)


@pytest.mark.parametrize(
    ("options", "counters"),
    [
        (dict(batching="static:3"), lambda r: r.padded_tokens > 0 and r.wasted_slots > 0),
        (dict(batching="continuous:3"), lambda r: r.padded_tokens == 0 and r.mean_batch > 1.5),
        (dict(chunking="budget:16"), lambda r: largest_step(r) == 16),
        (dict(chunking="budget:64", attention="padded"), lambda r: largest_step(r) == 64 and r.padded_tokens > 0),
        (dict(block_size=4, blocks=-1, chunking="budget:64"), lambda r: r.preemptions > 0),
    ],
    ids=["static", "continuous", "budget 16", "budget 64, padded", "tiny pool"],
)
def test_the_default_models_tokens(
    options: dict, counters, real: Model, real_work: Workload, real_solo: Report
) -> None:
    if "blocks" in options:  # room for the first two prompts, not for what follows them
        prompts = [request.num_prompt for request in real_work.requests(real)[:2]]
        options = options | {"blocks": sum(-(-length // options["block_size"]) for length in prompts)}
    report = run(real_work, real, clock="virtual", check=True, **options)
    assert counters(report), report.summary()
    assert report.finished == len(real_work)
    verdict = same_tokens(real_solo, report)
    assert verdict.verdict != "no", str(verdict)
