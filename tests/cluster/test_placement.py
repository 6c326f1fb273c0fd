from __future__ import annotations

import itertools
import json
import random

import pytest

from lab.cluster.partition import STRATEGIES
from lab.cluster.placement import change, main, place, place_all, prefill_table
from lab.cluster.prefill import MODELS, PrefillCost, triangle
from lab.errors import BadPolicy, BadWorkload

BOOK = [6000, 2000, 6000, 2000, 2000, 2000]
BALANCED = ["least-loaded", "lpt", "karmarkar-karp", "optimal"]
VARLEN, PADDED = PrefillCost("varlen"), PrefillCost("padded")


# -- the 42 % example, to the last digit ---------------------------------------------------------------------
def test_variable_length_fifo() -> None:
    fifo = place(BOOK, 2, "fifo")
    assert fifo.assignment == [[6000, 2000, 6000], [2000, 2000, 2000]]
    assert fifo.costs == [38_007_000, 6_003_000]
    assert (fifo.critical_path, fifo.total) == (38_007_000, 44_010_000)


@pytest.mark.parametrize("strategy", BALANCED)
def test_variable_length_balanced(strategy: str) -> None:
    placed = place(BOOK, 2, strategy)
    assert [sorted(lengths) for lengths in placed.assignment] == [[2000, 2000, 6000]] * 2
    assert placed.costs == [22_005_000, 22_005_000]
    assert placed.total == 44_010_000
    assert f"{change(placed.critical_path, 38_007_000):.2%}" == "-42.10%"


def test_padded_fifo() -> None:
    fifo = place(BOOK, 2, "fifo", PADDED)
    assert (fifo.costs, fifo.critical_path, fifo.total) == ([54_009_000, 6_003_000], 54_009_000, 60_012_000)


@pytest.mark.parametrize("strategy", ["least-loaded", "lpt", "karmarkar-karp"])
def test_padded_the_balanced_split_gains_nothing_and_costs_eighty_percent_more(strategy: str) -> None:
    placed = place(BOOK, 2, strategy, PADDED)
    assert [sorted(lengths) for lengths in placed.assignment] == [[2000, 2000, 6000]] * 2
    assert (placed.critical_path, placed.total) == (54_009_000, 108_018_000)
    assert change(placed.critical_path, 54_009_000) == 0.0
    assert f"{change(placed.total, 60_012_000):.0%}" == "80%"


@pytest.mark.parametrize("strategy", ["optimal", "bucketed"])
def test_padded_optimal_is_the_bucketed_split(strategy: str) -> None:
    placed = place(BOOK, 2, strategy, PADDED)
    assert placed.assignment == [[6000, 6000], [2000, 2000, 2000, 2000]]
    assert (placed.costs, placed.total) == ([36_006_000, 8_004_000], 44_010_000)
    assert f"{change(placed.critical_path, 54_009_000):.1%}" == "-33.3%"


def test_the_right_policy_flips_with_the_kernel() -> None:
    assert place(BOOK, 2, "bucketed", VARLEN).critical_path > place(BOOK, 2, "lpt", VARLEN).critical_path
    assert place(BOOK, 2, "bucketed", PADDED).critical_path < place(BOOK, 2, "lpt", PADDED).critical_path


def test_on_one_device_no_order_changes_the_attention_work() -> None:
    assert {place(BOOK, 1, name).total for name in STRATEGIES} == {44_010_000}


# -- the whole prefill ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "share", "reduction", "crossover"),
    [
        ("llama-3-70b", 4.9, 29.2, "104k"),
        ("llama-3-8b", 9.3, 29.8, "53k"),
        ("llama-2-7b", 9.9, 29.9, "49k"),
        ("qwen2.5-0.5b", 24.6, 31.9, "16.6k"),
        ("gpt2-124m", 37.1, 33.6, "9.2k"),
        ("smollm2-135m", 46.9, 34.9, "6.1k"),
    ],
)
def test_share_reduction_and_crossover_by_model(model: str, share: float, reduction: float, crossover: str) -> None:
    row = prefill_table(BOOK, 2)[model]
    assert round(100 * row["attention_share"], 1) == share
    assert round(-100 * row["change"], 1) == reduction
    digits = 1 if "." in crossover else 0
    assert f"{row['crossover'] / 1000:.{digits}f}k" == crossover


def test_the_gain_lies_between_that_of_the_tokens_and_that_of_the_attention() -> None:
    for row in prefill_table(BOOK, 2).values():
        assert 1 - 10 / 14 < -row["change"] < 0.4211


@pytest.mark.parametrize("name", MODELS)
def test_at_the_crossover_attention_costs_what_the_linear_layers_cost(name: str) -> None:
    shape = MODELS[name]
    assert PrefillCost("varlen", shape).attention_share([shape.crossover]) == pytest.approx(0.5, abs=1e-3)


def test_known_weight_counts() -> None:
    assert MODELS["smollm2-135m"].linear_weights == 106_168_320
    assert MODELS["llama-2-7b"].linear_weights == 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert MODELS["gpt2-124m"].linear_weights == 12 * 12 * 768**2


# -- strategies in general -----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernel", ["varlen", "padded"])
@pytest.mark.parametrize("devices", [1, 2, 3, 5, 9])
def test_every_strategy_places_every_prompt_once(seed: int, kernel: str, devices: int) -> None:
    draw = random.Random(seed)
    prompts = [draw.randint(1, 500) for _ in range(draw.randint(1, 9))]
    for name, placed in place_all(prompts, devices, PrefillCost(kernel)).items():
        assert sorted(itertools.chain(*placed.indices)) == list(range(len(prompts))), name
        assert placed.assignment == [[prompts[index] for index in group] for group in placed.indices]
        assert len(placed.assignment) == devices
        if kernel == "varlen":
            assert placed.total == sum(map(triangle, prompts))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kernel", ["varlen", "padded"])
@pytest.mark.parametrize("devices", [2, 3])
def test_optimal_equals_looking_at_every_split(seed: int, kernel: str, devices: int) -> None:
    draw, cost = random.Random(seed), PrefillCost(kernel)
    prompts = [draw.choice([100, 200, 300, 700]) + draw.choice([0, 0, 1]) for _ in range(7)]
    found = []
    for split in itertools.product(range(devices), repeat=len(prompts)):
        groups = [
            [tokens for tokens, chosen in zip(prompts, split, strict=True) if chosen == d] for d in range(devices)
        ]
        works = [cost(group) for group in groups]
        found.append((max(works), sum(works)))
    placed = place(prompts, devices, "optimal", cost)
    assert (placed.critical_path, placed.total) == min(found)


@pytest.mark.parametrize("seed", range(10))
def test_bounds_that_are_proved(seed: int) -> None:
    draw = random.Random(seed)
    prompts = [draw.randint(1, 900) for _ in range(9)]
    best = place(prompts, 3, "optimal").critical_path
    assert place(prompts, 3, "lpt").critical_path <= (4 / 3 - 1 / 9) * best
    assert place(prompts, 3, "least-loaded").critical_path <= (2 - 1 / 3) * best
    assert place(prompts, 3, "karmarkar-karp").critical_path <= (4 / 3 - 1 / 9) * best


def test_karmarkar_karp_on_its_textbook_example() -> None:
    lengths = [8, 7, 6, 5, 4]  # as plain numbers: differencing leaves 2, LPT leaves 4

    class Plain(PrefillCost):
        def __call__(self, prompts) -> int:
            return sum(prompts)

    differencing, longest_first = place(lengths, 2, "karmarkar-karp", Plain()), place(lengths, 2, "lpt", Plain())
    assert sorted(differencing.costs) == [14, 16]
    assert sorted(longest_first.costs) == [13, 17]


def test_equal_counts_where_it_does_not_divide() -> None:
    assert place([1, 2, 3, 4, 5], 3, "fifo").assignment == [[1, 2], [3, 4], [5]]
    assert place([1, 2, 3, 4, 5], 3, "round-robin").assignment == [[1, 4], [2, 5], [3]]
    assert place([5], 3, "fifo").assignment == [[5], [], []]


# -- command line --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kernel", ["varlen", "padded"])
def test_the_command_writes_every_strategy(kernel: str, tmp_path, capsys) -> None:
    file = tmp_path / "placement.json"
    prompts = ",".join(map(str, BOOK))
    assert main(["--prompts", prompts, "--devices", "2", "--kernel", kernel, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert list(result["strategies"]) == list(STRATEGIES)
    for name, placed in result["strategies"].items():
        direct = place(BOOK, 2, name, PrefillCost(kernel))
        assert placed["assignment"] == direct.assignment and placed["costs"] == direct.costs
        assert (placed["critical_path"], placed["total"]) == (direct.critical_path, direct.total)
    printed = capsys.readouterr().out
    assert ("38,007,000" if kernel == "varlen" else "54,009,000") in printed
    assert ("-42.10%" if kernel == "varlen" else "-33.33%") in printed


def test_the_command_counts_all_of_prefill_for_a_model(tmp_path, capsys) -> None:
    file = tmp_path / "placement.json"
    assert main(["--model", "llama-3-8b", "--strategy", "lpt", "--json", str(file)]) == 0
    placed = json.loads(file.read_text())["strategies"]["lpt"]
    assert placed["critical_path_change"] == pytest.approx(-0.298, abs=0.0005)
    assert main(["--model", "all", "--json", str(file)]) == 0
    assert set(json.loads(file.read_text())["models"]) == set(MODELS)
    assert "smollm2-135m" in capsys.readouterr().out


def test_optimal_is_left_out_where_it_cannot_be_enumerated(tmp_path, capsys) -> None:
    file = tmp_path / "placement.json"
    assert main(["--prompts", ",".join(["7"] * 13), "--json", str(file)]) == 0
    assert "optimal" not in json.loads(file.read_text())["strategies"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "6000,x"], "whole numbers separated by commas"),
        (["--prompts", ""], "whole numbers separated by commas"),
        (["--prompts", "6000,0"], "at least 1"),
        (["--prompts", "6000,-5"], "[-5]"),
        (["--devices", "0"], "on 0 devices"),
        (["--kernel", "flash"], "'flash' is not known; there are varlen, padded"),
        (["--strategy", "best"], "'best' is not known; there are fifo"),
        (["--model", "gpt-9"], "'gpt-9' is not known; there are llama-3-70b"),
        (["--strategy", "optimal", "--prompts", ",".join(["7"] * 13)], "at most 12 prompts; these are 13"),
        (["--json", "/nowhere/at/all.json"], "No such file"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], message: str, capsys) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_typed_errors() -> None:
    for prompts in ([], [0], [2.5], [True], ["7"]):
        with pytest.raises(BadWorkload):
            place(prompts, 2)
    for devices in (0, -1, 1.5):
        with pytest.raises(BadPolicy):
            place([5], devices)
