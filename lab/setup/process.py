"""Run a slow command with a heartbeat, keep its output in a log, and turn a failure into one sentence."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.setup.console import SetupError, Status, size

_INTERESTING = re.compile(r"^\s*(Collecting|Downloading|Using cached|Installing|Building|reading|writing)\b")


@dataclass(slots=True)
class Result:
    code: int
    output: str


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    watch: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a command to its end, showing how long it takes and how big the folder `watch` has grown.

    Output goes to `log` (appended) and comes back in the result; nothing is raised for a bad exit code.
    """
    words = [str(word) for word in command]
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=None if env is None else {**os.environ, **env},
        cwd=cwd,
    )
    try:
        output = _follow(child, words, log, watch)
    except BaseException:
        child.kill()
        raise
    finally:
        child.wait()
    return Result(child.returncode, output)


def _follow(child: subprocess.Popen, words: Sequence[str], log: Path, watch: Path | None) -> str:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    status, kept, doing, grown = Status(), [], "", FolderSize(watch)
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(words)}\n")
        while True:
            try:
                line = lines.get(timeout=0.2)
            except queue.Empty:
                line = ""
            if line is None:
                break
            if line:
                out.write(line)
                kept.append(line)
                if _INTERESTING.match(line):
                    doing = _shorten(line)
            if status.due():
                status.show("  ".join(filter(None, [grown.text(status.elapsed), doing])))
        status.clear()
    return "".join(kept)


def _shorten(line: str) -> str:
    line = line.strip()
    if line.startswith("Installing collected packages:"):
        return f"installing {line.count(',') + 1} packages"
    return re.sub(r" \(from .*", "", line)[:70]


class FolderSize:
    """How much a folder has grown; looks at the disk at most every 5 s because that takes a while."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.looked, self.known = folder, -10.0, 0.0

    def text(self, elapsed: float) -> str:
        if self.folder is None:
            return ""
        if elapsed - self.looked >= 5:
            self.looked, self.known = elapsed, folder_mb(self.folder)
        return f"{size(self.known)} on disk" if self.known >= 1 else ""


def folder_mb(folder: Path) -> float:
    """Total size of the files below a folder that may change while we look."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total / 1e6


_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device|Errno 28|not enough space",
        "The disk is full: free about 3 GB where {where} lives, then run the same command again.",
    ),
    (
        r"DO NOT MATCH THE HASHES|hash mismatch",
        "A download was damaged: run the same command again; if it happens again, empty pip's cache with "
        "`python3 -m pip cache purge`.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "A secure connection to the package index failed: check the clock and the proxy's certificate "
        "(PIP_CERT), then run the same command again.",
    ),
    (
        r"name resolution|NameResolutionError|getaddrinfo failed|NewConnectionError|ConnectTimeout"
        r"|ReadTimeout|Max retries exceeded|Connection (refused|reset|aborted)|ProxyError"
        r"|Network is unreachable|IncompleteRead|nodename nor servname",
        "The package index cannot be reached: check the network (or set HTTPS_PROXY or PIP_INDEX_URL), "
        "then run the same command again; it goes on where it stopped.",
    ),
    (
        r"Permission denied|Errno 13|Read-only file system",
        "{where} cannot be written: use a copy of the repository in a folder of your own.",
    ),
)


def explain(result: Result, what: str, where: Path, log: Path) -> SetupError:
    """The one sentence for a failed command; `what` completes "… failed", `where` is the folder written."""
    for pattern, sentence in _CAUSES:
        if re.search(pattern, result.output, re.IGNORECASE):
            return SetupError(sentence.format(where=where))
    missing = re.search(r"No matching distribution found for (\S+)", result.output)
    if missing:
        import platform

        return SetupError(
            f"The package index has no {missing[1]} for Python {platform.python_version()} on "
            f"{platform.system()} {platform.machine()}: try Python 3.11 or another index (PIP_INDEX_URL)."
        )
    errors = [line.strip() for line in result.output.splitlines() if re.match(r"\s*(ERROR|error|\w+Error):", line)]
    reason = f": {errors[-1][:200]}" if errors else f" (exit code {result.code})"
    return SetupError(f"{what} failed{reason}; the whole output is in {log}.")
