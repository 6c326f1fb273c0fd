"""The three file formats. A trace has no text: a prompt is its length, and a Mooncake one also its block keys.

    azure      TIMESTAMP,ContextTokens,GeneratedTokens                 Splitwise, ISCA'24; Azure/AzurePublicDataset
    mooncake   {"timestamp", "input_length", "output_length", "hash_ids"}    FAST'25; kvcache-ai/Mooncake
    lengths    num_prefill_tokens,num_decode_tokens                    as in Vidur and Sarathi-Serve

Every answer runs to its recorded length. Errors are BadWorkload and name the file and the line; a workload is
made only when everything that is wanted of the file could be read.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from lab import numbers
from lab.errors import BadWorkload
from lab.request import SamplingParams
from lab.traces.reading import NS, Record, Window, lines, records, whole
from lab.workload import RequestSpec, Workload

AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
LENGTHS_HEADER = "num_prefill_tokens,num_decode_tokens"
KEY_SIZE = 512  # tokens per entry of hash_ids
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


def azure(
    path: str | Path,
    *,
    limit: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
    scale: float = 1.0,
    max_prompt: int | None = None,
) -> Workload:
    """An Azure trace; arrivals are seconds after its first request (see Window for the options)."""
    window = Window(limit, start, duration, scale, max_prompt)
    return _workload(Path(path), window.select(records(Path(path), _azure_record, AZURE_HEADER)))


def mooncake(
    path: str | Path,
    *,
    limit: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
    scale: float = 1.0,
    max_prompt: int | None = None,
) -> Workload:
    """A Mooncake trace; arrivals as for `azure`. `hash_ids` become block keys of 512 tokens; no token ids exist."""
    window = Window(limit, start, duration, scale, max_prompt)
    return _workload(Path(path), window.select(records(Path(path), _mooncake_record)))


def lengths(
    path: str | Path,
    *,
    limit: int | None = None,
    start: int = 0,
    max_prompt: int | None = None,
    rate: float | None = None,
    load: float | None = None,
    seed: int = 0,
) -> Workload:
    """Rows of a length file in their order, from row `start` on, with Poisson arrivals.

    Give `rate` (requests/s) or `load` (× measured capacity); with neither, 4 requests/s, as for chat workloads.
    """
    if rate is not None and load is not None:
        raise BadWorkload(f"give rate ({rate}) or load ({load}), not both")
    numbers.whole(start, "start (a row, as there are no times) is", 0, BadWorkload)
    draw = random.Random(seed)
    found = (row for index, row in enumerate(records(Path(path), _lengths_record, LENGTHS_HEADER)) if index >= start)
    now, timed = 0.0, []
    for _, record in Window(limit, max_prompt=max_prompt).select(found):
        timed.append((now, record))
        now += draw.expovariate(1.0)
    return _workload(Path(path), timed, 4.0 if rate is None and load is None else rate, load)


def load(path: str | Path, **options: Any) -> Workload:
    """Read the file as the format its first line belongs to."""
    number, first = next(lines(Path(path)), (1, ""))
    readers = {"{": mooncake, AZURE_HEADER: azure, LENGTHS_HEADER: lengths}
    for begin, reader in readers.items():
        if first.startswith(begin):
            return reader(path, **options)
    expected = f"a Mooncake record, {AZURE_HEADER} or {LENGTHS_HEADER}"
    raise BadWorkload(f"{path}, line {number}: {first[:80]!r} begins no trace; expected {expected}")


def _workload(
    path: Path, timed: Iterable[tuple[float, Record]], rate: float | None = None, load: float | None = None
) -> Workload:
    specs = tuple(
        RequestSpec(seconds, record.prompt, _sampling(record.output), block_keys=record.keys, key_size=KEY_SIZE)
        for seconds, record in timed
    )
    if not specs:
        raise BadWorkload(f"{path} has no requests in the part that is wanted")
    return Workload(path.stem, specs, rate, load)


@cache
def _sampling(output: int) -> SamplingParams:
    return SamplingParams(max_tokens=output, ignore_eos=True)


def _azure_record(text: str) -> Record:
    fields = _fields(text, AZURE_HEADER)
    return Record(_nanoseconds(fields[0]), whole("ContextTokens", fields[1], 1), whole("GeneratedTokens", fields[2], 1))


def _lengths_record(text: str) -> Record:
    fields = _fields(text, LENGTHS_HEADER)
    return Record(0, whole("num_prefill_tokens", fields[0], 1), whole("num_decode_tokens", fields[1], 1))


def _fields(text: str, header: str) -> list[str]:
    """The columns of `header`; a file may have more of them behind."""
    fields = text.split(",")
    if len(fields) < header.count(",") + 1:
        raise ValueError(f"{len(fields)} fields, expected {header}")
    return fields


def _nanoseconds(text: str) -> int:
    """`2023-11-16 18:17:03.9799600`, with or without a zone, as nanoseconds since 1970 (no zone: UTC)."""
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"TIMESTAMP is {text[:40]!r}; expected a form like 2023-11-16 18:17:03.9799600")
    clock, fraction, zone = found.groups()
    moment = datetime.fromisoformat(clock + (zone or "").replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * NS + int((fraction or "0").ljust(9, "0"))


def _mooncake_record(text: str) -> Record:
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(entry, dict):
        raise ValueError(f"{text[:40]!r} is not a JSON object")
    missing = [name for name in ("timestamp", "input_length", "output_length") if name not in entry]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; there is {', '.join(list(entry)[:5]) or 'nothing'}")
    prompt, output = (
        whole("input_length", entry["input_length"], 1),
        whole("output_length", entry["output_length"], 1),
    )
    return Record(_milliseconds(entry["timestamp"]), prompt, output, _keys(entry.get("hash_ids", []), prompt))


def _milliseconds(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"timestamp is {value!r}; it must be milliseconds, 0 or more")
    return round(value * 1_000_000)


def _keys(ids: object, prompt: int) -> tuple[int, ...]:
    if not isinstance(ids, list) or not all(type(key) is int for key in ids):
        raise ValueError("hash_ids must be a list of whole numbers")
    if len(ids) > -(-prompt // KEY_SIZE):
        raise ValueError(
            f"{len(ids)} hash_ids for {prompt} tokens; there are {-(-prompt // KEY_SIZE)} blocks of {KEY_SIZE}"
        )
    return tuple(ids)
