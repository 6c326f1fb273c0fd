"""A JupyterLab of our own and a headless Chromium in front of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium() -> str | None:
    """Path of a Chromium, None where there is none."""
    named = os.environ.get("LAB_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome")
    return named or next((path for name in names if (path := shutil.which(name))), None)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def jupyter(folder: Path, home: Path, dark: bool = False) -> Iterator[str]:
    """JupyterLab on `folder` with settings of its own under `home`; yields the URL with its token."""
    settings = home / "settings"
    theme = settings / "@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    theme.parent.mkdir(parents=True, exist_ok=True)
    theme.write_text(json.dumps({"theme": "JupyterLab Dark" if dark else "JupyterLab Light"}))
    news = settings / "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    env = os.environ | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    port, token = free_port(), "live-test"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True"]  # to switch themes
    with open(home / "jupyter.log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api?token={token}", process, home / "jupyter.log")
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token={token}"
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not answer; its log ends:\n{log.read_text()[-2000:]}")


@contextmanager
def browser(shots: Path, width: int = 1440, height: int = 1500) -> Iterator[Any]:
    """A page that collects console errors in `page.problems`; when something fails, a picture goes to `shots`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium(), headless=True, args=ARGUMENTS)
        context = chrome.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.problems = []
        page.on("console", lambda message: _is_ours(message) and page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(f"uncaught: {error}"))
        try:
            yield page
        except BaseException:
            page.screenshot(path=shots / "failed.png")
            raise
        finally:
            context.close()
            chrome.close()


def _is_ours(message: Any) -> bool:
    """An error, but not the server's answer to a question about a kernel that has not quite started (it asks again)."""
    return message.type == "error" and "/api/kernels" not in (message.location or {}).get("url", "")


def notebook(cells: list[str]) -> str:
    """The text of a notebook with these code cells."""
    entries = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
        for i, text in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


def shoot(page: Any, part: Any, path: Path) -> None:
    """A picture of a part that may be changing all the time (Locator.screenshot would wait for it to stop)."""
    page.screenshot(path=path, clip=part.bounding_box())


def without_outputs(path: Path) -> None:
    """Forget what a notebook has run before, so that what is seen has just been run."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    path.write_text(json.dumps(content), encoding="utf-8")


def up_to(path: Path, text: str) -> None:
    """Drop the cells after the first code cell that has `text`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    code = [cell["cell_type"] == "code" and text in "".join(cell["source"]) for cell in content["cells"]]
    content["cells"] = content["cells"][: code.index(True) + 1]
    path.write_text(json.dumps(content), encoding="utf-8")


def change_theme(page: Any, theme: str) -> None:
    """ "JupyterLab Light" or "JupyterLab Dark"."""
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.wait_for_function("dark => (document.body.dataset.jpThemeLight === 'false') === dark", arg="Dark" in theme)
    page.wait_for_timeout(400)


def show_cell(page: Any, text: str) -> None:
    """Scroll to the first cell whose source has `text`: JupyterLab draws what is in view."""
    page.evaluate(
        """text => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            const sources = notebook.widgets.map(cell => cell.model.sharedModel.getSource());
            return notebook.scrollToItem(sources.findIndex(source => source.includes(text)), "start");
        }""",
        text,
    )


def open_notebook(page: Any, url: str) -> None:
    """Go there and wait until its kernel answers: JupyterLab asks for a kernel when cells are run before that."""
    page.goto(url)
    page.wait_for_selector(".jp-Notebook", timeout=90_000)
    page.evaluate(
        """async () => {
            const panel = window.jupyterapp.shell.currentWidget;
            await panel.context.ready;
            await panel.sessionContext.ready;
            await panel.sessionContext.session.kernel.info;
        }"""
    )


def run_all(page: Any, seconds: float) -> None:
    """Run all cells and wait for the last."""
    page.evaluate(
        """() => {
            window.labDone = false;
            window.jupyterapp.commands.execute("notebook:run-all-cells").then(() => { window.labDone = true; });
        }"""
    )
    page.wait_for_function("() => window.labDone", timeout=1000 * seconds)
