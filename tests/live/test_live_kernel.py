"""In a real kernel: cells return at once, re-running and interrupting leave no thread, nothing is printed."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

SETUP = """
import sys, threading, time
sys.path[:0] = [{root!r}, {tests!r}]
import lab
from oracles import HashModel
from lab.workload import fixed_workload
work = fixed_workload([(1, 2, 3)] * 400, [40] * 400, [0.1 * i for i in range(400)])
def threads():
    return sum(thread.name.startswith("lab-live") for thread in threading.enumerate())
"""
TESTS = Path(__file__).resolve().parents[1]
START = (
    "session = lab.live.Session(work, HashModel(), batching='continuous:4'); d = session.dashboard(); session.start()"
)


@pytest.fixture(scope="module")
def kernel():
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
    run(client, SETUP.format(root=str(TESTS.parent), tests=str(TESTS)))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client, code: str, cell: str = "a", expect: str = "ok") -> str:
    """Run code as the cell of that id; returns what it printed."""
    said = []

    def hear(message):
        if message["msg_type"] == "stream":
            said.append(message["content"]["text"])

    content = dict(code=code, silent=False, store_history=True, user_expressions={}, allow_stdin=False)
    content["stop_on_error"] = True
    message = client.session.msg("execute_request", content, metadata={"cellId": cell})
    client.shell_channel.send(message)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reply = client.get_iopub_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            hear(reply)
            if reply["msg_type"] == "status" and reply["content"]["execution_state"] == "idle":
                break
    assert answer(client, message)["status"] == expect
    return "".join(said)


def answer(client, message) -> dict:
    """The kernel's reply to a message."""
    while True:
        reply = client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return reply["content"]


def test_rerunning_a_cell_replaces_its_session(kernel):
    _, client = kernel
    run(client, START, "one")
    run(client, "first = session", "other")
    run(client, START, "one")
    assert (
        run(client, "print(first.state, session.state in ('preparing', 'running'), threads())") == "replaced True 2\n"
    )
    assert run(client, "session.stop(); print(threads())") == "0\n"


def test_interrupting_between_cells_stops_sessions(kernel):
    manager, client = kernel
    run(client, START, "two")
    manager.interrupt_kernel()
    time.sleep(1.0)
    assert run(client, "session.wait(10); print(session.state, threads())") == "stopped 0\n"


def test_interrupting_a_cell_stops_sessions(kernel):
    manager, client = kernel
    run(client, START, "three")
    code = "import time\nfor _ in range(600): time.sleep(0.1)"
    content = dict(code=code, silent=False, store_history=True, user_expressions={}, allow_stdin=False)
    message = client.session.msg("execute_request", content | {"stop_on_error": True})
    client.shell_channel.send(message)
    time.sleep(1.0)
    manager.interrupt_kernel()
    assert answer(client, message)["ename"] == "KeyboardInterrupt"
    assert run(client, "session.wait(10); print(session.state, threads())") == "stopped 0\n"


def test_the_plain_view_is_exchanged_in_place(kernel):
    _, client = kernel
    code = (
        "import os; os.environ['LAB_LIVE'] = 'plain'\n"
        + START.replace("d = session", "session").split("; session.start")[0]
    )
    first = displays(client, code)
    assert [kind for kind, _ in first] == ["display_data"] and "session.start()" in first[0][1]["text/html"]
    later = displays(client, "session.start(); import time; time.sleep(1.5); session.stop()")
    assert len(later) >= 2 and {kind for kind, _ in later} == {"update_display_data"}
    assert "<svg" in later[-1][1]["text/html"] and "stopped" in later[-1][1]["text/plain"]


def test_a_dashboard_keeps_a_picture_in_its_cell_although_nobody_calls_stop(kernel):
    pytest.importorskip("anywidget")
    _, client = kernel
    code = "import os; os.environ['LAB_LIVE'] = 'widget'\n" + START.split("; d = session")[0] + "; session.dashboard()"
    widget, empty = (data for kind, data in displays(client, code) if kind == "display_data")
    assert "application/vnd.jupyter.widget-view+json" in widget and "the picture below stays" in widget["text/plain"]
    assert "are kept here" in empty["text/html"] and "<svg" not in empty["text/html"]
    found = re.search(r'class="(lab-kept-[0-9a-f]{8})"', empty["text/html"])
    later = displays(client, "session.set(speed=1e9); session.start(); session.wait(60); time.sleep(0.5)")
    ((kind, data),) = [(kind, data) for kind, data in later if found.group(0) in data.get("text/html", "")]
    assert kind == "update_display_data"
    assert "<svg" in data["text/html"] and "finished" in data["text/plain"] and "400" in data["text/plain"]


def displays(client, code: str) -> list[tuple[str, dict]]:
    """What a cell shows: (message type, data)."""
    content = dict(code=code, silent=False, store_history=True, user_expressions={}, allow_stdin=False)
    message = client.session.msg("execute_request", content | {"stop_on_error": True}, metadata={"cellId": "plain"})
    client.shell_channel.send(message)
    found = []
    while True:
        reply = client.get_iopub_msg(timeout=60)
        if reply["msg_type"] in ("display_data", "update_display_data"):
            found.append((reply["msg_type"], reply["content"]["data"]))
        ours = reply["parent_header"].get("msg_id") == message["header"]["msg_id"]
        if ours and reply["msg_type"] == "status" and reply["content"]["execution_state"] == "idle":
            assert answer(client, message)["status"] == "ok"
            return found


def test_errors_reach_the_cell_that_stops(kernel):
    _, client = kernel
    run(client, "class Broken(HashModel):\n def runner(self, *a, **k): raise RuntimeError('no weights')")
    run(client, START.replace("HashModel()", "Broken()"), "four")
    assert run(client, "session.wait(10); print(session.state)") == "failed\n"
    run(client, "session.stop()", expect="error")
