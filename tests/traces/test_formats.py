"""Loaders on small files of every kind of good and bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import traces
from lab.errors import BadWorkload
from lab.simulation.priced import Priced
from lab.workload import Workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROWS = ["2023-11-16 23:59:59.9799600,4808,10", "2023-11-17 00:00:00.0319600,3180,8", "2023-11-17 00:00:01.5,110,27"]
LENGTHS = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [0, 3]},
    {"timestamp": 2500, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 4]},
]


@pytest.fixture
def write(tmp_path: Path):
    """Write text or bytes to a new file and give its path."""

    def make(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def azure_file(write, *rows: str, end: str = "\n") -> Path:
    return write(end.join([AZURE, *rows]) + end)


def mooncake_file(write, *records: dict) -> Path:
    return write("".join(json.dumps(record) + "\n" for record in records), "trace.jsonl")


def shape(work: Workload) -> list[tuple]:
    return [(spec.arrival, spec.prompt, spec.sampling.max_tokens) for spec in work.specs]


GOOD = [(0.0, 4808, 10), (0.052, 3180, 8), (1.52004, 110, 27)]


# -- good files ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_azure(write, end: str) -> None:
    work = traces.azure(azure_file(write, *ROWS, end=end))
    assert shape(work) == GOOD
    assert work.name == "trace" and work.timed
    assert all(spec.sampling.ignore_eos and spec.block_keys == () for spec in work.specs)


@pytest.mark.parametrize("before, after", [("", ""), ("\ufeff", ""), ("", "\r\n\r\n")], ids=["no end", "BOM", "blank"])
def test_the_ends_of_a_file(write, before: str, after: str) -> None:
    assert shape(traces.azure(write(before + "\r\n".join([AZURE, *ROWS]) + after))) == GOOD


def test_seven_digits_are_not_rounded(write) -> None:
    rows = [f"2023-11-16 18:17:03.{fraction},1,1" for fraction in ("9799600", "9799601", "9799602")]
    assert [spec.arrival for spec in traces.azure(azure_file(write, *rows)).specs] == [0.0, 1e-7, 2e-7]


def test_a_zone_counts(write) -> None:
    rows = [
        "2024-05-10 02:00:00.009930+02:00,5,5",
        "2024-05-10 00:00:01.009930+00:00,5,5",
        "2024-05-10T00:00:02Z,5,5",
    ]
    assert [spec.arrival for spec in traces.azure(azure_file(write, *rows)).specs] == [0.0, 1.0, 1.99007]


def test_mooncake_needs_no_tokens(write) -> None:
    work = traces.mooncake(mooncake_file(write, *MOONCAKE))
    assert shape(work) == [(0.0, 1100, 5), (0.0, 600, 7), (2.5, 1300, 9)]
    assert [spec.block_keys for spec in work.specs] == [(0, 1, 2), (0, 3), (0, 1, 4)]
    requests = work.requests(Priced())
    assert [(each.prompt, each.num_prompt, each.block_keys, each.key_size) for each in requests] == [
        (None, 1100, (0, 1, 2), 512),
        (None, 600, (0, 3), 512),
        (None, 1300, (0, 1, 4), 512),
    ]


def test_mooncake_without_hash_ids(write) -> None:
    work = traces.mooncake(mooncake_file(write, {"timestamp": 7, "input_length": 3, "output_length": 1}))
    assert shape(work) == [(0.0, 3, 1)] and work.specs[0].block_keys == ()


def test_lengths_come_in_file_order_with_poisson_arrivals(write) -> None:
    path = write(f"{LENGTHS}\n" + "".join(f"{prompt},{prompt + 1},0,0.5\n" for prompt in range(1, 41)))
    work = traces.lengths(path, rate=2.0, seed=3)
    assert [(spec.prompt, spec.sampling.max_tokens) for spec in work.specs] == [(p, p + 1) for p in range(1, 41)]
    assert work.rate == 2.0 and work.specs[0].arrival == 0.0
    assert work.specs == traces.lengths(path, rate=9.0, seed=3).specs
    assert work.specs != traces.lengths(path, rate=2.0, seed=4).specs
    assert [spec.prompt for spec in traces.lengths(path, start=30, limit=4).specs] == [31, 32, 33, 34]
    assert [spec.prompt for spec in traces.lengths(path, max_prompt=2).specs] == [1, 2]
    assert traces.lengths(path).rate == 4.0
    assert traces.lengths(path, load=1.5).load == 1.5


def test_load_knows_every_format(write) -> None:
    assert traces.load(azure_file(write, *ROWS), limit=1).specs[0].prompt == 4808
    assert traces.load(mooncake_file(write, *MOONCAKE)).specs[0].block_keys == (0, 1, 2)
    assert traces.load(write(f"{LENGTHS}\n3,4,7,0.75\n"), rate=1.0).specs[0].prompt == 3
    with pytest.raises(BadWorkload, match=r"trace.csv, line 1: 'a,b' begins no trace"):
        traces.load(write("a,b\n1,2\n"))


# -- parts of a trace ---------------------------------------------------------------------------------------
def at(seconds: float, prompt: int = 5) -> str:
    return f"2023-11-16 18:00:{seconds:010.7f},{prompt},1"


@pytest.mark.parametrize(
    "options, arrivals",
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"limit": 2}, [0, 1]),
        ({"start": 1.5}, [0.5, 1.5, 2.5]),
        ({"start": 1.0, "duration": 2.0}, [0, 1]),
        ({"duration": 3.5, "limit": 9}, [0, 1, 2, 3]),
        ({"start": 2, "scale": 0.5}, [0, 0.5, 1]),
        ({"max_prompt": 12}, [0, 1, 2]),
        ({"max_prompt": 13, "start": 1, "limit": 2}, [0, 1]),
    ],
    ids=str,
)
def test_parts(write, options: dict, arrivals: list[float]) -> None:
    path = azure_file(write, *(at(10 + second, 10 + second) for second in range(5)))
    assert [spec.arrival for spec in traces.azure(path, **options).specs] == arrivals


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 2.5},
        {"limit": True},
        {"scale": "2"},
        {"start": -1},
        {"duration": 0},
        {"scale": -2.0},
        {"scale": float("nan")},
    ]
    + [{"max_prompt": 0}, {"start": float("inf")}],
    ids=str,
)
def test_parts_that_cannot_be(write, options: dict) -> None:
    with pytest.raises(BadWorkload, match=next(iter(options))):
        traces.azure(azure_file(write, *ROWS), **options)


def test_a_part_without_requests(write) -> None:
    with pytest.raises(BadWorkload, match="no requests in the part"):
        traces.azure(azure_file(write, *ROWS), start=100)


def test_rate_or_load_not_both(write) -> None:
    with pytest.raises(BadWorkload, match="not both"):
        traces.lengths(write(f"{LENGTHS}\n3,4\n"), rate=1.0, load=1.0)
    with pytest.raises(BadWorkload, match="start .* is -1"):
        traces.lengths(write(f"{LENGTHS}\n3,4\n"), start=-1)


def test_a_trace_at_another_rate_keeps_its_rhythm(write) -> None:
    work = traces.azure(azure_file(write, at(0), at(1), at(1), at(6)))
    times = [each.arrival_time for each in work.at_rate(5.0).requests(Priced())]
    assert times == pytest.approx([0, 0.1, 0.1, 0.6])  # three gaps of 0.2 on average
    assert work.at_rate(5.0).rate == 5.0 and not work.at_rate(5.0).timed
    assert work.at_load(1.5).load == 1.5 and work.at_load(1.5).at_rate(5.0) == work.at_rate(5.0)
    together = traces.azure(azure_file(write, at(0), at(0)))
    assert [each.arrival_time for each in together.at_rate(5.0).requests(Priced())] == [0, 0]


# -- bad files ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "row, problem",
    [
        ("2023-11-16 18:17:04.03,31", "2 fields"),
        ("2023-11-16 18:17:04.03,-5,8", "ContextTokens is -5; it must be at least 1"),
        ("2023-11-16 18:17:04.03,5,0", "GeneratedTokens is 0"),
        ("2023-11-16 18:17:04.03,5,-8", "GeneratedTokens is -8"),
        ("2023-11-16 18:17:04.03,5.5,8", "ContextTokens is '5.5'; it must be a whole number"),
        ("2023-11-16 18:17:04.03,nan,8", "ContextTokens is 'nan'"),
        ("2023-11-16 18:17:04.03,1_000,8", "ContextTokens is '1_000'"),
        ("2023-11-16 18:17:04.03," + "9" * 5000 + ",8", "ContextTokens"),
        ("yesterday,5,8", "TIMESTAMP is 'yesterday'"),
        ("2023-13-16 18:17:04.03,5,8", "month must be in"),
        ("2023-11-16 18:17:04.03,5,8\x00", "GeneratedTokens"),
        ("2023-11-16 18:17:02.9,5,8", r"out of order: it arrives 1.07996 s before"),
        ("<<<<<<< HEAD", "1 fields"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_broken_line_is_named(write, row: str | bytes, problem: str) -> None:
    good = [AZURE, "2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:05.0319600,3180,8"]
    row = row if isinstance(row, bytes) else row.encode()
    path = write("\r\n".join(good[:2]).encode() + b"\r\n" + row + b"\r\n" + good[2].encode())
    with pytest.raises(BadWorkload, match=f"trace.csv, line 3: .*{problem}"):
        traces.azure(path)


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{"timestamp": 5, "input_length": 6', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"timestamp": 5, "output_length": 6}', "input_length missing"),
        ('{"timestamp": 5, "input_length": -6, "output_length": 1}', "input_length is -6"),
        ('{"timestamp": 5, "input_length": 6.5, "output_length": 1}', "input_length is 6.5"),
        ('{"timestamp": 5, "input_length": true, "output_length": 1}', "input_length is True"),
        ('{"timestamp": 5, "input_length": 6, "output_length": 0}', "output_length is 0"),
        ('{"timestamp": -5, "input_length": 6, "output_length": 1}', "timestamp is -5"),
        ('{"timestamp": NaN, "input_length": 6, "output_length": 1}', "timestamp is nan"),
        ('{"timestamp": "5", "input_length": 6, "output_length": 1}', "timestamp is '5'"),
        ('{"timestamp": 5, "input_length": 6, "output_length": 1, "hash_ids": [1, "2"]}', "hash_ids must be"),
        ('{"timestamp": 5, "input_length": 6, "output_length": 1, "hash_ids": 3}', "hash_ids must be"),
        ('{"timestamp": 5, "input_length": 513, "output_length": 1, "hash_ids": [1, 2, 3]}', "3 hash_ids for 513"),
        ('{"timestamp": 1, "input_length": 6, "output_length": 1}', r"out of order: it arrives 0.001 s before"),
    ],
)
def test_a_broken_record_is_named(write, line: str, problem: str) -> None:
    good = '{"timestamp": 2, "input_length": 6, "output_length": 1}\n'
    with pytest.raises(BadWorkload, match=f"trace.jsonl, line 2: .*{problem}"):
        traces.mooncake(write(good + line + "\n" + good, "trace.jsonl"))


def test_a_length_file_with_a_broken_line(write) -> None:
    with pytest.raises(BadWorkload, match="trace.csv, line 3: num_decode_tokens is '-'"):
        traces.lengths(write(f"{LENGTHS}\n3,4,7,0.75\n3,-\n"))


@pytest.mark.parametrize("reader", [traces.azure, traces.lengths])
@pytest.mark.parametrize("content", ["time,in,out\n1,2,3\n", "3,4,7\n", "\n\nTIMESTAMP\n"], ids=repr)
def test_the_header_must_be_right(write, reader, content: str) -> None:
    with pytest.raises(BadWorkload, match="line [13]: the header is .*, expected '(TIMESTAMP|num_prefill)"):
        reader(write(content))


@pytest.mark.parametrize("reader", [traces.azure, traces.lengths])
@pytest.mark.parametrize("content", ["", "\r\n\n"], ids=repr)
def test_an_empty_file_has_no_header(write, reader, content: str) -> None:
    with pytest.raises(BadWorkload, match="trace.csv is empty, expected the header '(TIMESTAMP|num_prefill)"):
        reader(write(content))


@pytest.mark.parametrize("content", [f"{AZURE}\n", f"{AZURE}"])
def test_a_header_alone_is_no_trace(write, content: str) -> None:
    with pytest.raises(BadWorkload, match="trace.csv has no requests"):
        traces.azure(write(content))


def test_an_empty_file_is_no_trace(write) -> None:
    with pytest.raises(BadWorkload, match="trace.jsonl has no requests"):
        traces.mooncake(write("", "trace.jsonl"))
    with pytest.raises(BadWorkload, match="line 1"):
        traces.load(write(""))


@pytest.mark.parametrize("reader", [traces.azure, traces.mooncake, traces.lengths, traces.load])
def test_a_file_that_is_not_there(tmp_path: Path, reader) -> None:
    with pytest.raises(BadWorkload, match="gone.csv cannot be read .* fetch-data"):
        reader(tmp_path / "gone.csv")
    with pytest.raises(BadWorkload, match="cannot be read"):
        reader(tmp_path)


def test_only_what_is_wanted_is_read(write) -> None:
    path = azure_file(write, *ROWS, "broken")
    assert len(traces.azure(path, limit=3)) == 3
    with pytest.raises(BadWorkload, match="line 5"):
        traces.azure(path, limit=4)
