"""`python3 -m lab fetch-data [NAMES]`: the public traces, from their owners, into data/traces. Standard library only.

Every file is pinned by commit and SHA-256. A broken download goes on where it stopped; a file appears under its
name only when it is complete and verified. The files stay under their owners' licences and out of git.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lab.errors import LabError
from lab.setup.console import Status
from lab.setup.paths import data_dir

HOST = "https://raw.githubusercontent.com"
TIMEOUT_S = 30.0
ATTEMPTS = 3
CHUNK = 1 << 16
PAUSE_S = 1.0  # before the second attempt; twice as long before the third
_PASSING = (0, 408, 429, 500, 502, 503, 504)  # no answer, or one after which trying again can help


class FetchFailed(LabError):
    """A file could not be fetched; one sentence says why and what to do."""


class _Broken(Exception):
    """One attempt failed; the status is the server's answer, if it gave one."""

    def __init__(self, problem: str, status: int = 0):
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class Source:
    """One public file, its pinned content and the licence it comes under."""

    file: str  # its name here
    repository: str
    commits: list[str]  # all hold this content; the next is tried where one is not found
    path: str
    size: int
    sha256: str
    licence: str


@cache
def sources() -> dict[str, Source]:
    """Every known file by its short name."""
    table = json.loads((Path(__file__).parent / "traces" / "sources.json").read_text(encoding="utf-8"))
    return {name: Source(**entry) for name, entry in table.items()}


def main(argv: Sequence[str]) -> int:
    """Fetch the named files, or all of them; returns the exit code. Raises FetchFailed."""
    known = ", ".join(sources())
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python3 -m lab fetch-data", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {known} (default: all)")
    parser.add_argument("--folder", type=Path, help="where to put them (default: data/traces)")
    options = parser.parse_args(list(argv))
    unknown = [name for name in options.names if name not in sources()]
    if unknown:
        raise FetchFailed(f"{', '.join(unknown)} is not known; there are {known}")
    for name in options.names or sources():
        source = sources()[name]
        path = fetch(source, options.folder or data_dir() / "traces")
        print(f"{name}: {path} ({source.licence}, github.com/{source.repository})", flush=True)
    return 0


def fetch(source: Source, folder: Path, host: str = HOST) -> Path:
    """The verified file in `folder`, downloaded if it is not there yet. Raises FetchFailed."""
    target, part = folder / source.file, folder / f".{source.file}.part"
    try:
        if target.is_file() and _sha256(target) == source.sha256:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        _download(source, part, host)
        if _sha256(part) != source.sha256:
            part.unlink()
            raise FetchFailed(
                f"{source.file} arrived with another content than expected and was deleted: try again; if it "
                "happens again, a proxy changes downloads or the owner replaced the file"
            )
        os.replace(part, target)
    except OSError as error:
        raise FetchFailed(f"{folder} cannot be used ({error.strerror or error})") from error
    return target


def _download(source: Source, part: Path, host: str) -> None:
    """Complete `part`; where the server does not know one commit, from the next."""
    urls = [f"{host}/{source.repository}/{commit}/{source.path}" for commit in source.commits]
    problem = ""
    for url in urls:
        try:
            return _with_patience(url, source, part)
        except _Broken as error:
            problem = str(error)
            if error.status != 404:
                break
    raise FetchFailed(
        f"{source.file} could not be downloaded ({problem}): run the command again when there is a network, or put a "
        f"copy of {urls[0]} there as {part.parent / source.file}"
    )


def _with_patience(url: str, source: Source, part: Path) -> None:
    """A few attempts, each going on where the one before stopped."""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt * PAUSE_S)
        try:
            return _attempt(url, source, part)
        except _Broken as error:
            if attempt == ATTEMPTS - 1 or error.status not in _PASSING:
                raise


def _attempt(url: str, source: Source, part: Path) -> None:
    """Append what `part` lacks, or write it anew where the server cannot start in the middle. Raises _Broken."""
    have = part.stat().st_size if part.exists() else 0
    if have == source.size:
        return
    if have > source.size:
        part.unlink()
        have = 0
    with _open(url, have) as response, part.open("ab") as file:
        if have and response.status != 206:
            file.truncate(have := 0)
        status = Status()
        for chunk in _chunks(response):
            file.write(chunk)
            have += len(chunk)
            if have > source.size:
                break
            if status.due():
                status.show(f"{source.file}: {have / 1e6:.1f} of {source.size / 1e6:.1f} MB")
        status.clear()
    if have < source.size:
        raise _Broken(f"the connection ended after {have} of {source.size} bytes")


def _open(url: str, start: int) -> HTTPResponse:
    request = Request(url, headers={"User-Agent": "llm-batching-lab"} | ({"Range": f"bytes={start}-"} if start else {}))
    try:
        return urlopen(request, timeout=TIMEOUT_S)
    except HTTPError as error:
        error.close()
        raise _Broken(f"the server answered {error.code} {error.reason}", error.code) from error
    except URLError as error:
        raise _Broken(f"no connection to {url.split('/')[2]}: {error.reason}") from error
    except (HTTPException, OSError) as error:
        raise _Broken(f"no answer from {url.split('/')[2]}: {error or type(error).__name__}") from error


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """The body piece by piece; a connection that breaks is _Broken, errors of the caller's file are not."""
    while True:
        try:
            chunk = response.read(CHUNK)
        except (HTTPException, OSError) as error:
            raise _Broken(f"the connection broke: {error or type(error).__name__}") from error
        if not chunk:
            return
        yield chunk


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FetchFailed as error:
        sys.exit(f"fetch-data: {error}")
