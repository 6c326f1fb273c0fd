"""Reads measured profiles: per-layer times of Vidur (MIT, arXiv:2405.05465), collectives, Sarathi's iteration times.

The files are public and not part of this repository: they are read from a folder of the learner's, with names such as
`<gpu>_<model>_mlp.csv`, `net_<gpu>_dgx_all_reduce.csv` and `sarathi/*.csv`.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

from lab.errors import BadWorkload

#: What one layer runs beside attention. The embedding is measured too, but runs once per step and not per layer.
LAYER_OPERATIONS = (
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file. Raises BadWorkload where it cannot be read or is empty."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadWorkload(f"{path} cannot be read as CSV: {error}") from error
    if not rows:
        raise BadWorkload(f"{path} holds no rows")
    return rows


def layer_profile(path: Path, tp: int) -> dict[int, float]:
    """Seconds of one layer without attention, by tokens, on one of `tp` devices; medians where a count repeats."""
    times: dict[int, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if _number(row, "num_tensor_parallel_workers", path) == tp:
            milliseconds = sum(_number(row, f"time_stats.{name}.median", path) for name in LAYER_OPERATIONS)
            times[int(_number(row, "num_tokens", path))].append(milliseconds / 1e3)
    if not times:
        raise BadWorkload(f"{path} has no row for {tp} tensor-parallel workers")
    return {tokens: median(seconds) for tokens, seconds in sorted(times.items())}


def profile_shape(path: Path) -> dict[str, int]:
    """The sizes that a layer profile was taken with: heads, kv_heads, hidden, intermediate."""
    columns = {"heads": "n_head", "kv_heads": "n_kv_head", "hidden": "n_embd", "intermediate": "n_expanded_embd"}
    row = read_rows(path)[0]
    return {name: int(_number(row, column, path)) for name, column in columns.items()}


def all_reduce_profile(path: Path, workers: int) -> dict[int, float]:
    """Seconds of an all-reduce over `workers` devices of one node, by its size in bytes.

    The files do not say whether sizes are bytes or elements. They are bytes: as two-byte elements the larger ones would
    need 418 GB/s per direction of NVLink 3 and 883 of NVLink 4, which have 300 and 450.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if _number(row, "num_workers", path) == workers == _number(row, "devices_per_node", path):
            times[int(_number(row, "size", path))].append(_number(row, "time_stats.all_reduce.median", path) / 1e3)
    if not times:
        raise BadWorkload(f"{path} has no row for {workers} workers in one node")
    return {size: median(seconds) for size, seconds in sorted(times.items())}


def sarathi_iterations(folder: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds of an iteration by decode rows, and by prompt tokens of one prefill; batch 0 (warm-up) is left out."""
    decode, prefill = {}, {}
    for name, found in (("decode", decode), ("prefill", prefill)):
        path = folder / f"figure-2_{name}.csv"
        for row in read_rows(path):
            if _number(row, "Batch Id", path) > 0:
                found[int(_number(row, "batch_num_tokens", path))] = _number(row, "batch_execution_time", path)
    return decode, prefill


def sarathi_linear(folder: Path) -> dict[int, float]:
    """Seconds that linear layers take of an iteration, by its tokens (table 2)."""
    path = folder / "table-2_results.csv"
    rows = [row for row in read_rows(path) if not float(row["batch_num_prefill_tokens"]) or row["batch_size"] == "1"]
    return {int(_number(row, "batch_num_tokens", path)): _number(row, "linear", path) / 1e3 for row in rows}


def sarathi_chunked(folder: Path) -> dict[tuple[int, int], float]:
    """Seconds of a whole prefill by (prompt tokens, chunk size) (figure 9)."""
    path = folder / "figure-9_chunking-overhead.csv"
    return {
        (int(_number(row, "prefill_length", path)), int(_number(row, "chunk_size", path))): _number(
            row, "prefill_execution_time", path
        )
        / 1e3
        for row in read_rows(path)
    }


def _number(row: dict[str, str], column: str, path: Path) -> float:
    try:
        return float(row[column])
    except (KeyError, TypeError, ValueError) as error:
        raise BadWorkload(f"{path}, column {column!r}: {row.get(column)!r} is no number") from error
