"""Fetching the public traces, from a server of the test's own on 127.0.0.1."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from shared_data import shared

from lab import fetch_data
from lab.fetch_data import FetchFailed, Source, fetch

CONTENT = bytes(range(256)) * 1200  # about 300 kB: several pieces
SOURCE = Source(
    "trace.csv",
    "owner/repo",
    ["good", "older"],
    "data/trace.csv",
    len(CONTENT),
    hashlib.sha256(CONTENT).hexdigest(),
    "MIT",
)


class Server:
    """Serves CONTENT under one commit. `faults`, one per request: a status, or how many bytes to send at most."""

    def __init__(self) -> None:
        self.faults: list[int | str] = []
        self.commit, self.content, self.ranges = "good", CONTENT, True
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Range")))
                outer.answer(self)

            def log_message(self, *_) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if isinstance(fault, int):
            return request.send_error(fault)
        if request.path != f"/owner/repo/{self.commit}/data/trace.csv":
            return request.send_error(404)
        wanted = request.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(self.content) - start))
        request.end_headers()
        body = self.content[start:]
        request.wfile.write(body[: int(fault)] if fault else body)
        request.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch_data, "PAUSE_S", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_fetches_verifies_and_leaves_only_the_file(server: Server, tmp_path: Path) -> None:
    path = fetch(SOURCE, tmp_path / "new" / "traces", server.host)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["trace.csv"]
    assert server.asked == [("/owner/repo/good/data/trace.csv", None)]
    assert fetch(SOURCE, path.parent, server.host) == path
    assert len(server.asked) == 1  # it was there


def test_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.faults = ["100000", "50000"]
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_goes_on_in_the_next_session(server: Server, tmp_path: Path) -> None:
    server.faults = ["70000", 503, 503]
    with pytest.raises(FetchFailed, match=r"trace.csv could not be downloaded \(the server answered 503"):
        fetch(SOURCE, tmp_path, server.host)
    assert not (tmp_path / "trace.csv").exists()
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=70000-"


def test_a_server_that_cannot_start_in_the_middle(server: Server, tmp_path: Path) -> None:
    server.faults, server.ranges = ["70000"], False
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT


def test_the_connection_keeps_breaking(server: Server, tmp_path: Path) -> None:
    server.faults = ["10", "10", "10"]
    with pytest.raises(FetchFailed, match=r"the connection ended after 30 of 307200 bytes\)"):
        fetch(SOURCE, tmp_path, server.host)


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"x"], ids=["other", "longer"])
def test_another_content_is_deleted(server: Server, tmp_path: Path, content: bytes) -> None:
    server.content = content
    with pytest.raises(FetchFailed, match="arrived with another content than expected and was deleted"):
        fetch(SOURCE, tmp_path, server.host)
    assert list(tmp_path.iterdir()) == []
    server.content = CONTENT
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT


def test_a_damaged_file_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(CONTENT[:1000])
    (tmp_path / ".trace.csv.part").write_bytes(CONTENT + b"too much")
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT


def test_a_complete_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / ".trace.csv.part").write_bytes(CONTENT)
    assert fetch(SOURCE, tmp_path, "http://127.0.0.1:9").read_bytes() == CONTENT


def test_the_next_commit_where_one_is_gone(server: Server, tmp_path: Path) -> None:
    server.commit = "older"
    assert fetch(SOURCE, tmp_path, server.host).read_bytes() == CONTENT
    assert [path.split("/")[3] for path, _ in server.asked] == ["good", "older"]
    server.commit = "none"
    with pytest.raises(FetchFailed, match="the server answered 404"):
        fetch(SOURCE, tmp_path / "other", server.host)


def test_no_network_is_one_sentence(server: Server, tmp_path: Path) -> None:
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(FetchFailed) as caught:
        fetch(SOURCE, tmp_path, server.host)
    text = str(caught.value)
    assert text.startswith("trace.csv could not be downloaded (no connection to 127.0.0.1:")
    assert f"put a copy of {server.host}/owner/repo/good/data/trace.csv there as {tmp_path / 'trace.csv'}" in text
    assert "\n" not in text


def test_a_folder_that_cannot_be_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FetchFailed, match="cannot be used"):
        fetch(SOURCE, tmp_path / "file", server.host)


# -- the command --------------------------------------------------------------------------------------------
@pytest.fixture
def command(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(fetch_data, "sources", lambda: {"one": SOURCE})
    monkeypatch.setattr(fetch_data.fetch, "__defaults__", (server.host,))
    monkeypatch.setenv("LAB_DATA_DIR", str(tmp_path))
    return fetch_data.main


@pytest.mark.parametrize("names", [[], ["one"]], ids=str)
def test_the_command(command, tmp_path: Path, capsys: pytest.CaptureFixture, names: list[str]) -> None:
    assert command(names) == 0
    assert (tmp_path / "traces" / "trace.csv").read_bytes() == CONTENT
    assert capsys.readouterr().out == f"one: {tmp_path / 'traces' / 'trace.csv'} (MIT, github.com/owner/repo)\n"


def test_the_command_elsewhere(command, tmp_path: Path) -> None:
    assert command(["one", "--folder", str(tmp_path / "here")]) == 0
    assert (tmp_path / "here" / "trace.csv").exists()


def test_an_unknown_name(command) -> None:
    with pytest.raises(FetchFailed, match="two is not known; there are one"):
        command(["two"])


def test_progress_is_shown(command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("lab.setup.console.HEARTBEAT_S", 0.0)
    command([])
    assert "trace.csv: 0.3 of 0.3 MB" in capsys.readouterr().out


# -- the list -----------------------------------------------------------------------------------------------
def test_the_list_is_complete() -> None:
    for name, source in fetch_data.sources().items():
        assert len(source.sha256) == 64 and int(source.sha256, 16), name
        assert source.size > 0 and source.licence and source.path and source.commits, name
        assert "/" in source.repository and Path(source.file).name == source.file, name
        assert len(source.commits[0]) == 40, name


@pytest.mark.parametrize("name", fetch_data.sources())
def test_sums_are_those_of_the_originals(name: str) -> None:
    source = fetch_data.sources()[name]
    content = shared(f"traces/{source.file}").read_bytes()
    assert len(content) == source.size
    assert hashlib.sha256(content).hexdigest() == source.sha256
