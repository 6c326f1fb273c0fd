"""Open JupyterLab on the first notebook, stay in the foreground, end cleanly on Ctrl-C.

The server binds 127.0.0.1 and wants a token, handed over in its environment (a command line is public to
every user of the computer) and checked to be asked for. Standard library only; torch is never imported here.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

from lab.setup.console import SetupError, say
from lab.setup.paths import ROOT, venv_dir

START = "notebooks/00_start.ipynb"
FIRST_PORT, PORTS = 8888, 50
PATIENCE_S = 60.0


def open_lab(*, port: int | None = None, browser: bool = True) -> int:
    """Serve until interrupted; returns the exit code. Raises SetupError when the server cannot start."""
    began = time.monotonic()
    chosen = choose_port(port)
    token = secrets.token_hex(24)
    log = _log_file()
    with log.open("w", encoding="utf-8") as out:
        server = subprocess.Popen(
            server_command(chosen),
            cwd=ROOT,
            env=server_environment(token),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone; we end the server
        )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _wait_until_answering(server, chosen, token, log)
        _greet(chosen, token, time.monotonic() - began, log)
        if browser and can_open_browser():
            webbrowser.open(url(chosen, token))
        return server.wait()
    except KeyboardInterrupt:
        say("\nStopping JupyterLab and its kernels.")
        return 0
    finally:
        _end(server)


def choose_port(port: int | None) -> int:
    """The wanted port, or the first free one from 8888 on. Raises SetupError when it is busy."""
    if port is not None:
        if not _free(port):
            raise SetupError(f"Port {port} is in use or not allowed: choose another with --port, or leave it out.")
        return port
    for candidate in range(FIRST_PORT, FIRST_PORT + PORTS):
        if _free(candidate):
            return candidate
    raise SetupError(f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free: give one with --port.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def server_command(port: int) -> list[str]:
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser"),
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/{START}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        *(["--allow-root"] if root else []),
    ]


def server_environment(token: str) -> dict[str, str]:
    """What the kernels inherit: `lab` decides before torch is imported, so the launcher must too."""
    defaults = {"OMP_WAIT_POLICY": "passive", "THP_MEM_ALLOC_ENABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**defaults, **os.environ, "JUPYTER_TOKEN": token, "HF_HUB_OFFLINE": "1"}


def url(port: int, token: str) -> str:
    return f"http://127.0.0.1:{port}/lab/tree/{START}?token={token}"


def can_open_browser() -> bool:
    """False on Linux without a display, where a text browser could take over the terminal."""
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True


def _wait_until_answering(server: subprocess.Popen, port: int, token: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _status(port, token) != 200:
        if server.poll() is not None:
            last = next((line for line in reversed(log.read_text(errors="replace").splitlines()) if line), "")
            raise SetupError(f"JupyterLab ended at once ({last[:160]}); its whole output is in {log}.")
        if time.monotonic() > deadline:
            raise SetupError(f"JupyterLab did not answer within {PATIENCE_S:.0f} s; its output is in {log}.")
        time.sleep(0.1)
    if _status(port, None) == 200:
        raise SetupError(
            "Your Jupyter configuration switches its token off, which would open this computer to every user "
            "on it: remove that setting (see `jupyter --paths`) and start again."
        )


def _status(port: int, token: str | None) -> int | None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/status")
    if token:
        request.add_header("Authorization", f"token {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy
    try:
        with opener.open(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return None


def _greet(port: int, token: str, seconds: float, log: Path) -> None:
    say(f"JupyterLab is ready after {seconds:.1f} s. Open this in a browser on this computer:")
    say(f"\n    {url(port, token)}\n")
    say(f"Ctrl-C here ends it. Its messages go to {os.path.relpath(log)}.")


def _log_file() -> Path:
    folder = venv_dir() if venv_dir().exists() else Path(sys.prefix)
    return folder / "lab-jupyter.log"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _end(server: subprocess.Popen) -> None:
    """Ask the server to end (it ends its kernels), then insist."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(timeout=10)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            server.kill()
            server.wait()
