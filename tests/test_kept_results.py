"""The numbers of the README are those of the kept results."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = {"this engine": "ours", "OpenVINO GenAI": "openvino", "vLLM-CPU": "vllm", "transformers": "transformers"}


def kept(name: str) -> dict:
    return json.loads((ROOT / "data" / "results" / name).read_text(encoding="utf-8"))


def test_the_table_of_engines_is_the_kept_comparison():
    engines, seen = kept("peers.json")["engines"], set()
    for line in README.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = next((NAMES[start] for start in NAMES if line.startswith("| ") and cells[0].startswith(start)), None)
        if name is None or len(cells) != 3 or not cells[1].isdecimal() or name in seen:
            continue
        seen.add(name)
        row = engines[name]
        assert int(cells[1]) == round(row["median"])
        if name == "ours":
            continue
        middle, least, most = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", cells[2]).groups())
        ratios = row["ours_divided_by_it"]
        assert (middle, least, most) == tuple(round(x, 2) for x in (row["median_ratio"], min(ratios), max(ratios)))
        assert row["tokens_as_ours"] == "32 of 32 equal"
    assert seen == set(engines)


def test_the_shares_of_matrix_products_are_the_kept_ones():
    shares = kept("peers.json")["product_share"]
    whole, decode = re.search(
        r"take (\S+) times as long as their matrix products alone, a step of 32 decodes (\S+) times",
        README.replace("\n", " "),
    ).groups()
    assert float(whole) == round(shares["workload"]["ratio"], 2)
    assert float(decode) == round(next(point["ratio"] for point in shares["decodes"] if point["batch"] == 32), 2)


def test_the_table_of_threads_is_the_kept_one():
    found = kept("threads.json")["output_tokens_per_s"]
    for line, name in (
        ("this engine's own threads (the default)", "own threads"),
        ("oneDNN, OpenMP threads that wait passively", "oneDNN, passive OpenMP"),
        ("oneDNN, OpenMP threads that spin", "oneDNN, active OpenMP"),
    ):
        idle, busy = (sorted(found[where][name])[1] for where in ("idle", "beside a busy process"))
        assert f"| {line} | {idle:.0f} | {busy:.0f} |" in README
