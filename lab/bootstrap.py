"""Set up and dispatch ``python3 -m lab …``. Standard library only, until ``.venv`` is entered.

Every command first makes sure that set-up is complete (finishing an interrupted one) and continues inside
``.venv``; only help and mistakes are answered before that. Whatever goes wrong is one sentence and exit
code 1; a wrong command line is exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.setup import commands, fetch_model, process, torch_source, venv
from lab.setup.console import SetupError, Steps, say, size
from lab.setup.lock import only_one
from lab.setup.paths import ROOT, data_dir, inside_venv, venv_dir, venv_python
from lab.setup.pip import install, pip_log
from lab.setup.stamp import Stamp, pin

STEPS = ("venv", "torch", "packages", "project")
ENV_MB = 2600  # .venv holds 1.9 GB; while it is being installed, downloads lie beside it


def main(argv: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        return _main(list(argv))
    except SetupError as error:
        say()
        print(f"Stopped: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `… | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on where this one stopped.", file=sys.stderr)
        return 130


def _main(argv: list[str]) -> int:
    command, rest = commands.split(argv)
    if command is None:
        print(commands.unknown(argv[0]), file=sys.stderr)
        return 2
    if command == "help":
        print(commands.overview())
        return 0
    options = commands.parse_own(command, rest)  # exits on --help and on a wrong option
    if options is None and {"-h", "--help"} & set(rest) and _help_without_setup(command, rest):
        return 0
    venv.check_python()
    os.environ["LAB_DATA_DIR"] = str(data_dir())  # absolute: notebooks run in another folder
    try:
        set_up(allow_cuda=getattr(options, "allow_cuda", False))
    except BrokenPipeError:
        raise
    except OSError as error:  # a full or read-only disk can show anywhere
        raise process.explain(process.Result(1, f"OSError: {error}"), "Set-up", ROOT, pip_log()) from None
    if not inside_venv() and venv_python().exists():
        venv.reenter(argv)
    if command in ("open", "setup"):
        return _first_check_and_open(command, options)
    module = importlib.import_module(commands.OWN[command].module if command in commands.OWN else "lab.cli")
    return module.main(rest if command in commands.OWN else [command, *rest]) or 0


def _help_without_setup(command: str, rest: list[str]) -> bool:
    """Let ``… run --help`` answer at once on a fresh clone, where that needs no installed package."""
    if inside_venv():
        return False
    try:
        importlib.import_module("lab.cli").main([command, *rest])
    except ImportError:
        return False
    return True


def set_up(*, allow_cuda: bool = False) -> None:
    """Bring ``.venv`` and the model to what this version of the repository asks for; quick when they are."""
    ready = venv_complete() or venv.complete_without_venv()
    if ready and fetch_model.is_complete():
        return
    steps = Steps(len(STEPS) + 1)
    if not ready:
        with only_one(venv_dir() / "lab-setup.lock", "the set-up"):
            if not venv_complete():
                venv.check_space(ROOT, 500 if Stamp().done("packages") else ENV_MB)
                say(f"Setting up the LLM Batching Lab in {ROOT}")
                if not Stamp().done("torch"):
                    say("Once, a few minutes: 2 GB in .venv, 0.5 GB for the model. Interrupt and resume at will.")
                _install(steps, allow_cuda)
    if not fetch_model.is_complete():
        steps.number = len(STEPS)
        model = fetch_model.known_models()[fetch_model.DEFAULT_MODEL]
        with steps(f"Model {model['title']}", f"{size(model['download_mb'])} to download"):
            fetch_model.fetch()
    say(f"Set-up is complete after {_minutes(steps.elapsed)}.")


def venv_complete() -> bool:
    stamp = Stamp()
    return venv_python().exists() and all(stamp.done(step) for step in STEPS)


def _install(steps: Steps, allow_cuda: bool) -> None:
    """Do the steps that are not stamped as done, in order; stamp each as it ends."""

    def environment() -> None:
        venv.make_venv()
        stamp.reload()

    def torch() -> None:
        torch_source.install_torch(pin("torch"), allow_cuda=allow_cuda)

    def packages() -> None:
        exact = venv_dir() / "lab-torch.txt"  # keeps pip from exchanging the build chosen above
        exact.write_text(f"torch=={torch_source.installed_version()}\n", encoding="utf-8")
        install("the packages", "-r", ROOT / "requirements.txt", "-c", exact)

    def project() -> None:
        install("the project", "--no-deps", "--no-build-isolation", "-e", ROOT)
        _jupyter_settings()

    stamp = Stamp()
    if not venv_python().exists():
        stamp.forget("venv")
    for name, title, detail, work in (
        ("venv", "Python environment in .venv", f"Python {sys.version.split()[0]}", environment),
        ("torch", f"PyTorch {pin('torch')}", "", torch),
        ("packages", "Packages: JupyterLab, transformers, plotly, …", "330 MB to download, 1.1 GB on disk", packages),
        ("project", "This project, in editable mode", "", project),
    ):
        if stamp.done(name):
            steps.skip(title)
            continue
        with steps(title, detail):
            work()
        stamp.mark(name)


def _jupyter_settings() -> None:
    """No question about news at the first start."""
    settings = venv_dir() / "share" / "jupyter" / "lab" / "settings"
    settings.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).parent / "setup" / "overrides.json", settings / "overrides.json")


def _first_check_and_open(command: str, options: argparse.Namespace) -> int:
    stamp = Stamp()
    if not stamp.done("selfcheck") and importlib.util.find_spec("lab.selfcheck"):
        code = subprocess.run([sys.executable, "-m", "lab", "selfcheck"], cwd=ROOT).returncode
        if code:
            say("The self-check failed; `python3 -m lab doctor` shows more.")
            if command == "setup" or options.setup_only:
                return code
        elif inside_venv():
            stamp.mark("selfcheck")
    if command == "setup" or options.setup_only:
        say("Ready. Start with: python3 -m lab")
        return 0
    from lab.setup import launch

    return launch.open_lab(port=options.port, browser=not options.no_browser)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
