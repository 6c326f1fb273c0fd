"""The launcher: ports, the token, the environment kernels inherit, no text browser."""

import socket

import pytest

from lab.setup import launch
from lab.setup.console import SetupError


@pytest.fixture
def busy():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_busy_port_that_was_asked_for_is_one_sentence(busy):
    with pytest.raises(SetupError, match=f"Port {busy} is in use"):
        launch.choose_port(busy)


def test_a_busy_default_port_is_passed_over(busy, monkeypatch):
    monkeypatch.setattr(launch, "FIRST_PORT", busy)
    assert busy < launch.choose_port(None) < busy + launch.PORTS


def test_no_free_port_is_one_sentence(monkeypatch):
    monkeypatch.setattr(launch, "_free", lambda port: False)
    with pytest.raises(SetupError, match="--port"):
        launch.choose_port(None)


def test_the_token_is_handed_over_in_the_environment_only():
    env = launch.server_environment("secret")
    assert env["JUPYTER_TOKEN"] == "secret"
    assert not any("oken" in word for word in launch.server_command(8888))


def test_the_server_binds_this_computer_only():
    assert "--ServerApp.ip=127.0.0.1" in launch.server_command(8888)


def test_threads_wait_passively_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert launch.server_environment("t")["OMP_WAIT_POLICY"] == "passive"
    assert launch.server_environment("t")["THP_MEM_ALLOC_ENABLE"] == "1"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert launch.server_environment("t")["OMP_WAIT_POLICY"] == "active"


def test_root_is_allowed(monkeypatch):
    monkeypatch.setattr(launch.os, "geteuid", lambda: 0, raising=False)
    assert "--allow-root" in launch.server_command(8888)
    monkeypatch.setattr(launch.os, "geteuid", lambda: 1000, raising=False)
    assert "--allow-root" not in launch.server_command(8888)


def test_no_browser_without_a_display(monkeypatch):
    monkeypatch.setattr(launch.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not launch.can_open_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert launch.can_open_browser()


def test_a_server_that_ends_at_once_is_one_sentence(monkeypatch, tmp_path, busy):
    monkeypatch.setattr(launch, "_log_file", lambda: tmp_path / "log")
    monkeypatch.setattr(launch, "server_command", lambda port: [launch.sys.executable, "-c", "print('no luck')"])
    monkeypatch.setattr(launch.signal, "signal", lambda *_: None)
    with pytest.raises(SetupError, match=r"ended at once \(no luck\)"):
        launch.open_lab(browser=False)
