"""``python3 -m lab doctor``: what this computer is, what is installed, how fast it is, does batching work."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

from lab.setup import commands, fetch_model, stamp
from lab.setup.console import say
from lab.setup.machine import processor, usable_cores
from lab.setup.paths import ROOT, model_dir
from lab.setup.torch_source import has_nvidia_gpu

VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "LAB_DATA_DIR", "CUDA_VISIBLE_DEVICES")
WAITING = {
    "kernel": "own threads, which share a product's pieces and give way to other programs after microseconds",
    "onednn": "OpenMP, whose threads wait passively unless OMP_WAIT_POLICY says otherwise",
    "plain": "OpenMP, whose threads wait passively unless OMP_WAIT_POLICY says otherwise",
}


def main(argv: Sequence[str]) -> int:
    """Print the findings, write them with ``--json``; returns 1 when the model or the self-check fails."""
    options = commands.parse_own("doctor", argv)
    findings: dict[str, dict] = {}
    for title, section in SECTIONS:
        findings[title] = section()
        say(title)
        for name, value in findings[title].items():
            if isinstance(value, float):
                continue  # for --json; the line before it says the same in words
            say(f"  {name:<22}{value}")
    if options.json:
        Path(options.json).write_text(json.dumps(findings, indent=2) + "\n", encoding="utf-8")
    healthy = findings["model"]["state"].startswith("loaded")
    if importlib.util.find_spec("lab.selfcheck") and not options.no_selfcheck:
        say("self-check")
        healthy &= subprocess.run([sys.executable, "-m", "lab", "selfcheck"]).returncode == 0
    return 0 if healthy else 1


def machine() -> dict:
    memory = psutil.virtual_memory()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "cores": f"{psutil.cpu_count(logical=False)} physical, {psutil.cpu_count()} logical, "
        f"{usable_cores()} usable by this process",
        "memory": f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB available",
        "free disk": f"{shutil.disk_usage(ROOT).free / 1e9:.0f} GB",
        "busy": f"{psutil.cpu_percent(0.5):.0f} % of all cores, before this measures anything",
    }


def versions() -> dict:
    """Every pin beside what is installed, in full where the two differ."""
    found = {name: _installed(name) for name, _ in stamp.pins()}
    shown = ("torch", "transformers", "numpy", "numba", "jupyterlab", "ipykernel", "anywidget", "plotly")
    differing = [
        f"{name} {found[name]} (pinned {wanted})"
        for name, wanted in stamp.pins()
        if found[name].split("+")[0] != wanted
    ]
    return {
        "python": f"{platform.python_version()} at {sys.executable}",
        **{name: found[name] for name in shown},
        "not as pinned": ", ".join(differing) or "none",
    }


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def model() -> dict:
    facts: dict = {"folder": str(model_dir())}
    if not fetch_model.is_complete():
        return {**facts, "state": "incomplete: run `python3 -m lab --setup-only`"}
    facts["source"] = json.loads((model_dir() / "lab.json").read_text(encoding="utf-8"))["source"]
    try:
        started = time.monotonic()
        import lab

        lab.load_model()
    except Exception as error:  # a doctor reports whatever is wrong and goes on
        return {**facts, "state": f"cannot be loaded: {type(error).__name__}: {error}"}
    return {**facts, "state": f"loaded in {time.monotonic() - started:.1f} s, importing torch included"}


def gpu() -> dict:
    import torch

    if not has_nvidia_gpu():
        other = "Apple GPU seen by torch" if torch.backends.mps.is_available() else "none"
        return {"nvidia": f"{other}; everything runs on the CPU"}
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    usable = torch.cuda.is_available()
    return {"nvidia": listed or "listed without details", "usable by torch": "yes" if usable else "no"}


def threads() -> dict:
    """The policy in force, and what a busy program beside us does to a small product."""
    import lab  # noqa: F401  first, since it chooses how torch's threads wait

    # isort: split
    import torch

    from lab.execution.linear import Linear, kernel
    from lab.setup import measure

    way = Linear(torch.ones(1, 1)).way
    vectors = f" in {32 * kernel().lanes}-bit vectors" if way == "kernel" else ""
    measured = measure.small_products()
    return {
        "torch threads": torch.get_num_threads(),
        **{name: os.environ.get(name, "not set") for name in VARIABLES},
        "policy": f"products by {way}{vectors}: {WAITING[way]}",
        **{f"8-row product, {name}": str(times) for name, times in measured.items()},
        **{f"{name}_idle_us": times.idle for name, times in measured.items()},
        **{f"{name}_beside_us": times.beside for name, times in measured.items()},
    }


def speed() -> dict:
    """Measured peaks, the denominators of MFU and MBU; kept for `lab.peaks.this_machine`."""
    import torch

    from lab import peaks
    from lab.setup import measure

    rates: dict = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        flops, bandwidth = measure.peak_flops(device), measure.memory_bandwidth(device)
        rates[f"{device} peak"] = f"{flops.rate / 1e9:.0f} GFLOP/s ({flops.how})"
        rates[f"{device} bandwidth"] = f"{bandwidth.rate / 1e9:.1f} GB/s ({bandwidth.how})"
        rates[f"{device}_flops"], rates[f"{device}_bytes_per_s"] = flops.rate, bandwidth.rate
        kept = peaks.keep(flops.rate, bandwidth.rate, device, f"{flops.how}; {bandwidth.how}")
        if (kept.flops, kept.bytes_per_s) != (flops.rate, bandwidth.rate):
            rates[f"{device} peaks kept"] = (
                f"{kept.flops / 1e9:.0f} GFLOP/s, {kept.bytes_per_s / 1e9:.1f} GB/s: the best this computer ever "
                "reached counts (something else runs now, or ran then)"
            )
    return rates


SECTIONS = (
    ("machine", machine),
    ("versions", versions),
    ("model", model),
    ("gpu", gpu),
    ("threads", threads),
    ("speed", speed),
)
