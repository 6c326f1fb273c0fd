"""Errors become one sentence; slow commands show a heartbeat and leave a log."""

import sys

import pytest

from lab.setup import console, process


def sentence(output, tmp_path):
    result = process.Result(1, output)
    return str(process.explain(result, "Installing X", where=tmp_path, log=tmp_path / "log"))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying ... NewConnectionError(Failed to establish a new connection)", "cannot be reached"),
        ("Could not fetch URL: Max retries exceeded with url: /torch/", "cannot be reached"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "cannot be reached"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "damaged"),
        ("SSLError(SSLCertVerificationError: CERTIFICATE_VERIFY_FAILED)", "certificate"),
        ("OSError: [Errno 30] Read-only file system: '/x'", "cannot be written"),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no torch==2.13.0 for Python"),
        ("ERROR: something new and strange", "something new and strange"),
        ("", "exit code 1"),
    ],
)
def test_each_cause_has_one_sentence(output, expected, tmp_path):
    text = sentence(output, tmp_path)
    assert expected in text
    assert "\n" not in text and "Traceback" not in text and text.endswith(".")


def test_network_trouble_wins_over_its_consequence(tmp_path):
    output = "Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for x"
    assert "cannot be reached" in sentence(output, tmp_path)


def test_run_keeps_output_and_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(console, "HEARTBEAT_S", 0.0)
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    code = "import time; print('Collecting torch', flush=True); time.sleep(0.5); print('end'); raise SystemExit(3)"
    result = process.run([sys.executable, "-c", code], log=tmp_path / "log", watch=tmp_path)
    assert result.code == 3
    assert result.output == "Collecting torch\nend\n"
    assert "Collecting torch" in (tmp_path / "log").read_text()
    assert "2 MB on disk  Collecting torch" in capsys.readouterr().out


def test_run_adds_to_the_environment(tmp_path):
    code = "import os; print(os.environ['LAB_X'], 'PATH' in os.environ)"
    result = process.run([sys.executable, "-c", code], log=tmp_path / "log", env={"LAB_X": "7"})
    assert result.output == "7 True\n"


@pytest.mark.parametrize(("mb", "text"), [(93, "93 MB"), (999.4, "999 MB"), (1700, "1.7 GB")])
def test_sizes(mb, text):
    assert console.size(mb) == text
