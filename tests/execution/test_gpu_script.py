"""The script for GPU machines: it says at once that there is none, and its steps work on the CPU."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["gpu_benchmark"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_runs_nothing(script, capsys):
    assert script.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("There is no GPU here, so nothing was run: torch ")


def test_a_rehearsal_fills_the_table(script, capsys, tmp_path):
    path = tmp_path / "gpu.json"
    assert script.main(["--rehearse", "--no-tests", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["device"] == "CPU, a rehearsal" and found["peak_flops"] > 0 and found["peak_bytes_per_s"] > 0
    lines = found["lines"]
    kinds = [(line["what"], line["batch"], line["tokens"], line["way"]) for line in lines]
    assert ("decode", 4, 4, "paged_cpu") in kinds and ("prompt", 1, 256, "sdpa") in kinds
    for line in lines:
        assert abs(line["tokens_per_s"] * line["ms"] / 1e3 - line["tokens"]) < 1e-6 * line["tokens"]
        assert line["share"] > 0
    assert capsys.readouterr().out.count("MBU") == sum(line["what"] == "decode" for line in lines)


def test_a_line_that_cannot_be_measured_says_why(script, capsys, tiny):
    from lab.errors import ModelError
    from lab.peaks import Peaks

    def fail(model, peaks, batch, way):
        raise ModelError("no memory for keys and values")

    script.decode, kept = fail, script.decode
    try:
        lines = script.benchmark(tiny, Peaks(1e12, 1e11, "made up"), time.monotonic() + 60)
    finally:
        script.decode = kept
    assert lines[0].ms is None and "no memory for keys and values" in capsys.readouterr().out


def test_no_line_is_begun_after_the_deadline(script, tiny, capsys):
    from lab.peaks import Peaks

    assert script.benchmark(tiny, Peaks(1e12, 1e11, "made up"), deadline=time.monotonic() - 1) == []
    assert "the time is up" in capsys.readouterr().out


def test_the_shapes_are_those_of_llama_3(script):
    """8,030,261,248 and 1,235,814,400 parameters: the counts of meta-llama's Llama 3.1 8B and Llama 3.2 1B."""
    from math import prod

    counts = {}
    for name, (_, sizes) in script.SHAPES.items():
        config = script.ModelConfig(**script.LLAMA3, **sizes)
        counts[name] = sum(prod(shape) for shape in script.expected_shapes(config).values())
    assert counts == {"8b": 8_030_261_248, "1b": 1_235_814_400}
