"""The command line of ``python3 -m lab``: which commands there are, and the options of those that set up.

Every other command belongs to ``lab.cli``, which knows their names and parses their options.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Own(NamedTuple):
    help: str
    module: str


OWN: Mapping[str, Own] = {
    "open": Own("set up what is missing and open JupyterLab (the default)", "lab.setup.launch"),
    "setup": Own("set up and stop there", "lab.setup.launch"),
    "test": Own("run everything CI runs, or one stage of it", "lab.setup.testing"),
    "doctor": Own("show the computer, versions, model and measured speed, then the self-check", "lab.setup.doctor"),
}


def others() -> Mapping[str, str]:
    """The commands of ``lab.cli`` with a line of help each."""
    commands = importlib.import_module("lab.cli").COMMANDS
    return {name: command.help for name, command in commands.items()}


def split(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """(command, its arguments); the command is "open" by default and None when there is no such one."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        return "open", list(argv)
    if argv[0] in ("-h", "--help", "help"):
        return "help", []
    known = argv[0] in OWN or argv[0] in others()
    return (argv[0] if known else None), list(argv[1:])


def unknown(word: str) -> str:
    names = [*OWN, *others()]
    near = difflib.get_close_matches(word, names, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no command {word!r}.{hint} The commands are: {', '.join(names)}."


def overview() -> str:
    rows = [*((name, own.help) for name, own in OWN.items()), *others().items()]
    listing = "\n".join(f"  {name:<14}{text}" for name, text in rows)
    return (
        "usage: python3 -m lab [COMMAND] [OPTIONS]\n\nThe LLM Batching Lab. Commands:\n"
        f"{listing}\n\nEvery command explains itself: python3 -m lab COMMAND --help"
        "\nLAB_DATA_DIR names another folder for the model, for example one shared by a class."
    )


def parse_own(command: str, rest: Sequence[str]) -> argparse.Namespace | None:
    """Options of a command that is ours; None for one of ``lab.cli``. Exits on --help and on mistakes."""
    if command not in OWN:
        return None
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog=f"python3 -m lab {command}", description=OWN[command].help
    )
    if command in ("open", "setup"):
        parser.add_argument(
            "--allow-cuda", action="store_true", help="accept a CUDA build of PyTorch without an NVIDIA GPU"
        )
    if command == "open":
        parser.add_argument("--no-browser", action="store_true", help="print the URL, open no browser")
        parser.add_argument("--port", type=_port, help="port for JupyterLab (default: first free from 8888)")
        parser.add_argument("--setup-only", action="store_true", help="set up and stop there")
    if command == "doctor":
        parser.add_argument("--json", metavar="FILE", help="also write the findings as JSON")
        parser.add_argument("--no-selfcheck", action="store_true", help="leave out the self-check")
    if command == "test":
        from lab.setup.stages import STAGES

        parser.usage = f"{parser.prog} [STAGE [pytest arguments]]"
        parser.add_argument("stage", nargs="?", choices=[s.name for s in STAGES], help="run this one only")
        parser.add_argument("pytest_args", nargs=argparse.REMAINDER, help="passed on to pytest")
    return parser.parse_args(list(rest))


def _port(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port number (1-65535)")
