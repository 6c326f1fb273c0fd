"""Decide where torch comes from, so that a computer without an NVIDIA GPU never gets a CUDA build silently.

In this order: a torch of the pinned version that is already there; the package index, if what it offers is
a CPU build (or a GPU is present, or the system is not Linux); PyTorch's own public index of CPU builds; else
stop, naming the size and ``--allow-cuda``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.setup import pip as pip_calls
from lab.setup.console import SetupError, say
from lab.setup.paths import venv_dir, venv_python
from lab.setup.venv import check_space

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_SIZE = "about 200 MB to download, 0.8 GB on disk"
CUDA_SIZE = "2.7 GB to download, about 7 GB on disk"
CUDA_DISK_MB = 10_000  # while it is being installed, download and files lie side by side
_CUDA_REQUIREMENT = re.compile(r"^(nvidia-|cuda-|triton\b|pytorch-triton)", re.IGNORECASE)


@dataclass(slots=True)
class Offer:
    """What the package index would install for the pinned version."""

    version: str
    cuda: bool


def has_nvidia_gpu() -> bool:
    """True when an NVIDIA driver lists a GPU."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return False
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def read_offer(report: dict) -> Offer:
    """Read pip's ``--report``: a CUDA build shows in its local version or in what it requires on Linux."""
    meta = report["install"][0]["metadata"]
    version = str(meta["version"])
    local = version.partition("+")[2]
    if local:
        return Offer(version, local.startswith("cu"))
    return Offer(version, _requires_cuda(meta.get("requires_dist", ())))


def _requires_cuda(requirements: Iterable[str]) -> bool:
    return any(_CUDA_REQUIREMENT.match(text) and "extra ==" not in text for text in requirements)


def probe(version: str) -> Offer:
    """Ask pip, without downloading, which build the package index offers. Raises SetupError offline."""
    path = venv_dir() / "lab-torch-offer.json"
    result = pip_calls.pip(
        *("install", "--dry-run", "--ignore-installed", "--quiet", "--no-deps"),
        *("--report", path, f"torch=={version}"),
    )
    if result.code:
        raise pip_calls.failure(result, "Asking for PyTorch")
    offer = read_offer(json.loads(path.read_text(encoding="utf-8")))
    path.unlink()
    return offer


def installed_version(python: Path | None = None) -> str | None:
    """The torch version the environment can see, or None."""
    question = "import importlib.metadata as m; print(m.version('torch'))"
    answer = subprocess.run([python or venv_python(), "-c", question], capture_output=True, text=True)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def install_torch(version: str, *, allow_cuda: bool = False, platform: str = sys.platform) -> None:
    """Install the pinned torch by the rules of this module; raises SetupError when it must stop."""
    present = installed_version()
    if present and present.split("+")[0] == version:
        say(f"      using PyTorch {present}, which is already there")
        return
    gpu = has_nvidia_gpu()
    if not platform.startswith("linux"):
        say(f"      from the package index: {CPU_SIZE}")
        return pip_calls.install("PyTorch", f"torch=={version}")
    offer = probe(version)
    if not offer.cuda:
        say(f"      {offer.version}, a CPU build from the package index: {CPU_SIZE}")
        return pip_calls.install("PyTorch", f"torch=={version}")
    if gpu or allow_cuda:
        why = "there is an NVIDIA GPU" if gpu else "--allow-cuda was given"
        say(f"      {offer.version}, a CUDA build, because {why}: {CUDA_SIZE}")
        check_space(venv_dir(), CUDA_DISK_MB)
        return pip_calls.install("PyTorch", f"torch=={version}")
    say(f"      no NVIDIA GPU: a CPU build from {CPU_INDEX}: {CPU_SIZE}")
    result = pip_calls.pip("install", "--no-deps", "--index-url", CPU_INDEX, f"torch=={version}")
    if result.code:
        if "No space left" in result.output:
            raise pip_calls.failure(result, "Installing PyTorch")
        raise SetupError(
            "This computer has no NVIDIA GPU and PyTorch's CPU build could not be had from "
            f"{CPU_INDEX}: allow that address and try again, or accept the CUDA build ({CUDA_SIZE}) with "
            "`python3 -m lab --setup-only --allow-cuda`."
        )
