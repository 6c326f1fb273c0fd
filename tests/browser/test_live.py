"""The live notebook in a real browser: click Start, move a slider, see the canvas change, stop, in both themes; go
back to steps and find the numbers of the trace; and a long simulation that stays small.

LAB_LONG=1 makes the simulation one of 5,000 requests and 200,000 steps.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_kernel import ask_kernel, heap
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
    up_to,
    without_outputs,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(900 if os.environ.get("LAB_LONG") else 300),
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


LONG = [
    "import json, lab\nfrom math import inf\nfrom lab.simulation.priced import Priced\n"
    "from lab.workload import fixed_workload\n"
    "count, tokens = ({requests}, {tokens})\n"
    "work = fixed_workload([64 + i % 7 for i in range(count)], [tokens] * count, [0.2 * i for i in range(count)])",
    "session = lab.live.Session(work, Priced(), batching='continuous:8', name='long', speed=inf, blocks=65_536)\n"
    "session.dashboard()",
]
SAME = ("computed", "padded", "sampled", "recomputed", "running", "waiting", "used", "cached", "free")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the notebooks' folder, so that autosave touches nothing."""
    place = tmp_path_factory.mktemp("live") / "notebooks"
    real = ROOT / "notebooks"
    if (real / NOTEBOOK).is_file():
        shutil.copytree(real, place)
        without_outputs(place / NOTEBOOK)
        up_to(place / NOTEBOOK, "session.stop()")  # what comes after is measured, and tested elsewhere
    else:
        place.mkdir()
        (place / NOTEBOOK).write_text(notebook(CELLS))
    requests, tokens = (5000, 320) if os.environ.get("LAB_LONG") else (1200, 40)
    cells = [LONG[0].format(requests=requests, tokens=tokens), *LONG[1:]]
    (place / "long.ipynb").write_text(notebook(cells))
    return place


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One JupyterLab for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_QUICK", "1")
        with jupyter(folder, tmp_path_factory.mktemp("home")) as address:
            yield address


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go."""
    place = Path(os.environ.get("LAB_SCREENSHOTS", tmp_path / "screenshots"))
    place.mkdir(parents=True, exist_ok=True)
    return place


def test_the_live_notebook(url: str, shots: Path, record_property):
    with browser(shots) as page:
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
        go_back(page, live, "session")
        ask_why(page, live, "session")
        hover_blocks(page, live)
        shoot(page, live, shots / "stopped.png")
        print("in the browser (ms):", measured)
        record_property("live", str(measured))
        assert int(measured["updates"]) > 10
        assert page.problems == []


def go_back(page, live, session: str) -> None:
    """Slider, arrow keys and buttons lead to steps; what is shown is what the trace has."""
    lane, count = ask_kernel(
        page, f"import json; x = {session}.lanes; print(json.dumps([len(x) - 1, len(x[-1].trace)]))"
    )
    slider, panel = live.locator(".lab-scrub-slider"), live.locator(".lab-inspect")
    assert int(slider.get_attribute("max")) == count - 1
    slider.focus()
    page.keyboard.press("Home")
    for target, keys in ((min(2, count - 1), ["ArrowRight"] * 2), (count - 2, ["End", "ArrowLeft"]), (count // 2, [])):
        for key in keys:
            page.keyboard.press(key)
        if not keys:
            slider.evaluate("(e, to) => { e.value = to; e.dispatchEvent(new Event('input')); }", target)
        page.wait_for_function("to => document.querySelector('.lab-inspect').dataset.index === String(to)", arg=target)
        fields = "computed padded sampled recomputed running waiting used cached free start end"
        step = ask_kernel(
            page,
            f"t = {session}.lanes[{lane}].trace[{target}]; "
            f"print(json.dumps([[getattr(t, n) for n in '{fields}'.split()], "
            "[[r.request, r.num_tokens, r.padding] for r in t.rows]]))",
        )
        shown = [panel.locator(f"b[data-name={name}]").inner_text() for name in SAME]
        assert [float(text) for text in shown] == step[0][:9], f"step {target}"
        assert [float(panel.get_attribute(f"data-{name}")) for name in ("start", "end")] == step[0][9:]
        rows = panel.locator("tbody tr").evaluate_all(
            "rows => rows.map(r => [Number(r.dataset.request), ...[3, 4].map(i => Number(r.children[i].textContent))])"
        )
        assert rows == step[1], f"step {target}"


def ask_why(page, live, session: str) -> None:
    """A click on a request splits its time; the parts are those of the trace and sum to the whole."""
    main = live.locator("canvas.lab-main")
    main.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    total = live.locator(".lab-sum")
    total.wait_for(timeout=10_000)
    parts = ask_kernel(
        page,
        "from lab.live.split import time_split; print(json.dumps([sum(time_split(lane.trace, r).values()) "
        f"for lane in {session}.lanes for r in lane.trace.requests]))",
    )
    assert min(abs(float(total.get_attribute("data-total")) - value) for value in parts) < 1e-9


def hover_blocks(page, live) -> None:
    """The block map says in words who holds the block under the mouse, and under the keyboard's cursor."""
    canvas = live.locator("canvas.lab-blockmap")
    assert "KV blocks" in canvas.get_attribute("aria-label") and canvas.get_attribute("role") == "img"
    canvas.hover(position={"x": 6, "y": 8})
    tip = live.locator(".lab-blockplace .lab-tip")
    assert tip.inner_text().startswith("block")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().startswith("block")


def test_a_long_simulation_stays_small(url: str, shots: Path, record_property):
    with browser(shots) as page:
        open_notebook(page, url.format("long.ipynb").replace("/lab/tree", "/lab/workspaces/long/tree"))
        run_all(page, 60)
        live = page.locator(".lab-live")
        live.locator("canvas.lab-main").wait_for(timeout=20_000)
        before = heap(page)
        live.get_by_role("button", name="Start").click()
        page.wait_for_selector(".lab-live[data-state=finished]", timeout=800_000)
        page.wait_for_timeout(500)
        after, gaps = heap(page), [live.get_attribute(f"data-{name}") for name in ("updates", "p50", "p95")]
        go_back(page, live, "session")
        steps, megabytes = ask_kernel(
            page,
            "import resource; t = session.lanes[0].trace; "
            "print(json.dumps([len(t), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))",
        )
        shoot(page, live, shots / "long.png")
        sizes = f"heap {before:.0f} → {after:.0f} → {heap(page):.0f} MB after going back, kernel {megabytes:.0f} MB"
        words = f"{steps} steps: {sizes}"
        print(words, "updates, p50, p95:", gaps)
        record_property("long", words)
        assert heap(page) < before + 60, "the page keeps too much"
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
