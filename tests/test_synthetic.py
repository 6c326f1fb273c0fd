"""The synthetic traces: reproducible, small, and as close to the published statistics as the page says."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from lab import synthetic, traces
from lab.synthetic import FOLDER, LIMIT, PUBLISHED, SAMPLES, measured
from lab.traces.generate import batches, bursts, conversations, drifting, spread
from lab.traces.statistics import dispersion

NAMES = list(SAMPLES)
LOOSE = {"IDC 1 s": 0.1, "IDC 10 s": 0.2}  # counts of few windows


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_file_is_what_the_generator_makes(name: str) -> None:
    file, make = SAMPLES[name]
    content = (FOLDER / file).read_bytes()
    assert content == make().encode()
    assert len(content) <= LIMIT


def test_the_kept_page_is_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert synthetic.main(["--folder", str(tmp_path)]) == 0
    page = (tmp_path / "README.md").read_bytes()
    assert page == (FOLDER / "README.md").read_bytes()
    assert capsys.readouterr().out.strip() in page.decode()
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", *(file for file, _ in SAMPLES.values())}


@pytest.mark.parametrize("name", NAMES)
def test_statistics_are_the_published_ones(name: str) -> None:
    found = measured(name)
    assert found.keys() == PUBLISHED[name].keys()
    for statistic, published in PUBLISHED[name].items():
        assert found[statistic] == pytest.approx(published, rel=LOOSE.get(statistic, 0.02)), statistic


def test_the_page_names_every_miss() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sum(line.endswith(" % |") for line in page.splitlines()) == sum(map(len, PUBLISHED.values()))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("azure")])
def test_azure_files_have_the_traps_of_the_originals(name: str) -> None:
    content = (FOLDER / SAMPLES[name][0]).read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") == len(traces.azure(FOLDER / SAMPLES[name][0]))
    assert not content.endswith(b"\n")
    stamp = content.split(b"\r\n")[1].split(b",")[0]
    assert len(stamp.split(b".")[1]) == 7


def test_totals_stay_below_the_limit_of_the_original() -> None:
    work = traces.lengths(FOLDER / "sharegpt-like.csv")
    assert max(spec.prompt + spec.sampling.max_tokens for spec in work.specs) <= 8192


def test_a_key_always_follows_the_same_keys() -> None:
    before: dict[int, tuple[int, ...]] = {}
    for spec in traces.mooncake(FOLDER / "mooncake-like.jsonl").specs:
        assert len(spec.block_keys) == -(-spec.prompt // 512)
        for place, key in enumerate(spec.block_keys):
            assert before.setdefault(key, spec.block_keys[:place]) == spec.block_keys[:place]


# -- processes ----------------------------------------------------------------------------------------------
def test_spread_hits_its_knots_and_its_mean() -> None:
    values = spread(1001, (5, 100, 700, 900, 2000), 190.0)
    assert values == sorted(values)
    assert [values[place] for place in (0, 500, 950, 990, 1000)] == [5, 100, 700, 900, 2000]
    assert fmean(values) == pytest.approx(190, rel=0.005)


def test_spread_goes_as_far_as_it_can_towards_an_impossible_mean() -> None:
    assert fmean(spread(101, (5, 100, 700, 900, 2000), 5000.0)) < 900


@pytest.mark.parametrize(
    "times, rate, cv",
    [
        (bursts(2001, 2.0, 8.0, 0.01, random.Random(0)), 2.0, 8.0),
        (drifting(2001, 5.0, 1.3, 30, random.Random(0)), 5.0, 1.3),
    ],
    ids=["bursts", "drifting"],
)
def test_arrivals_have_their_rate_and_irregularity(times: list[float], rate: float, cv: float) -> None:
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert times[0] == 0 and min(gaps) >= 0
    assert len(times) / times[-1] == pytest.approx(rate)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.01)
    assert dispersion(times, 10.0) > 1.5  # what plain Poisson arrivals never have


def test_batches_share_stamps() -> None:
    times = batches(200, 4.0, 21, random.Random(0))
    assert len(times) == 200 and times == sorted(times) and times[0] == 0
    assert times[-1] == pytest.approx(200 / 4.0)
    assert set(times) <= {times[-1] / 20 * stamp for stamp in range(21)}


def test_conversations_continue_only_what_came_before() -> None:
    prompts, times = [600, 2000, 5000, 1100], [0.0, 0.0, 1.0, 2.0]
    keys = conversations(prompts, times, 1.0, random.Random(0))
    assert [len(each) for each in keys] == [2, 4, 10, 3]
    assert keys[1] == [0, *keys[1][1:]] and not set(keys[1][1:]) & set(keys[0])  # the same stamp: nothing is older
    assert keys[2][:3] == keys[1][:3] and keys[2][3] != keys[1][3]  # all full blocks of the longest, not its last
    assert keys[3][:1] == keys[0][:1] and keys[3][1] not in keys[0]
    assert all(len(set(each[1:]) & set(other[1:])) == 0 for each in keys[:1] for other in keys[1:])
