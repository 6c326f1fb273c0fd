"""The live notebook in a real browser: click Start, move a slider, see the canvas change, stop, in both themes."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from jupyter_page import (
    ROOT,
    browser,
    change_theme,
    chromium,
    jupyter,
    notebook,
    open_notebook,
    run_all,
    shoot,
    show_cell,
    without_outputs,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),  # about 60 s on two quiet cores
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine (set LAB_CHROMIUM, or install it)"),
]
pytest.importorskip("playwright")

NOTEBOOK = "04_continuous_batching.ipynb"
CELLS = [
    "import lab\nmodel = lab.load_model('tiny')\nwork = lab.chat_workload(requests=24, rate=4.0, seed=0)",
    "runs = {'static': dict(batching='static:8'), 'continuous': dict(batching='continuous:8')}\n"
    "session = lab.live.Session(work, model, runs, name='04')\nsession.dashboard()",
    "session.stop()",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the notebooks' folder, so that autosave touches nothing."""
    place = tmp_path / "notebooks"
    real = ROOT / "notebooks"
    if (real / NOTEBOOK).is_file():
        shutil.copytree(real, place)
        without_outputs(place / NOTEBOOK)
    else:
        place.mkdir()
        (place / NOTEBOOK).write_text(notebook(CELLS))
    return place


def test_the_live_notebook(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property):
    monkeypatch.setenv("LAB_QUICK", "1")
    shots = Path(os.environ.get("LAB_SCREENSHOTS", tmp_path / "screenshots"))
    shots.mkdir(parents=True, exist_ok=True)
    with jupyter(folder, tmp_path) as url, browser(shots) as page:
        open_notebook(page, url.format(NOTEBOOK))
        run_all(page, 120)
        live = page.locator(".lab-live")
        show_cell(page, "session.dashboard()")
        live.locator("canvas.lab-main").wait_for(timeout=20_000)
        assert live.get_attribute("data-state") == "ready", "Run All must not start a session"
        shoot(page, live, shots / "ready.png")

        before = pixels(page)
        live.get_by_role("button", name="Start").click()
        page.wait_for_selector(".lab-live[data-state=running]", timeout=60_000)
        page.wait_for_timeout(3000)
        first = pixels(page)
        assert first != before, "nothing is drawn"

        use_sliders(page, live)
        page.wait_for_timeout(2500)
        assert pixels(page) != first, "the picture stands still"
        shoot(page, live, shots / "light.png")
        change_theme(page, "JupyterLab Dark")
        shoot(page, live, shots / "dark.png")
        change_theme(page, "JupyterLab Light")

        measured = {
            name: live.get_attribute(f"data-{name}")
            for name in ("updates", "p50", "p95", "answer", "effect", "draw-ms")
        }
        live.get_by_role("button", name="Stop").click()
        page.wait_for_selector(".lab-live[data-state=stopped], .lab-live[data-state=finished]", timeout=20_000)
        assert live.locator("tbody tr").first.locator("td").first.inner_text() != "–"
        assert "output tokens/s" in live.locator(".lab-hidden[role=status]").inner_text()
        shoot(page, live, shots / "stopped.png")
        print("in the browser (ms):", measured)
        record_property("live", str(measured))
        assert int(measured["updates"]) > 10
        assert page.problems == []


def use_sliders(page, live) -> None:
    """Load by mouse, batch size by keyboard; the notebook must not take the keys for itself."""
    cell = page.locator(".jp-Notebook .jp-Cell.jp-mod-active").get_attribute("data-windowed-list-index")
    load, batch = (live.locator(f"input[data-name={name}]") for name in ("rate", "max_batch"))
    shown = live.locator("output")
    words = shown.all_inner_texts()
    box = load.bounding_box()
    for share in (0.6, 0.7, 0.8):
        page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        page.wait_for_timeout(400)
    batch.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(300)
    now = shown.all_inner_texts()
    assert now[0] != words[0] and now[1] != words[1], f"a slider did not move: {words}, {now}"
    page.wait_for_function("() => document.querySelector('.lab-live').dataset.answer !== ''", timeout=10_000)
    assert page.locator(".jp-Notebook .jp-Cell.jp-mod-active").get_attribute("data-windowed-list-index") == cell


def pixels(page) -> str:
    """A digest of what the canvas shows."""
    picture = page.evaluate("() => document.querySelector('canvas.lab-main').toDataURL()")
    return hashlib.sha256(picture.encode()).hexdigest()
