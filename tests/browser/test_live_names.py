"""A live notebook whose policies have long names: nothing is cut off, and the saved notebook has a picture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jupyter_page import browser, chromium, jupyter, notebook, open_notebook, run_all, shoot

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine (set LAB_CHROMIUM, or install it)"),
]
pytest.importorskip("playwright")

NAMED = [
    "import lab\nfrom math import inf\nfrom lab.simulation.priced import Priced\n"
    "from lab.workload import fixed_workload\n"
    "work = fixed_workload([64 + 9 * (i % 7) for i in range(60)], [40] * 60, [0.02 * i for i in range(60)])\n"
    "runs = {'static:8, padded, whole prompts': dict(batching='static:8'),\n"
    "        'continuous:8 with chunks of at most 256 tokens, first come first served, nothing kept': "
    "dict(batching='continuous:8'),\n"
    "        'averyveryveryverylongnamewithoutanyblanksinitwhichcannotbebrokenanywhere': "
    "dict(batching='continuous:8', blocks=3)}",
    "session = lab.live.Session(work, Priced(), runs, name='names', speed=inf, slo={'ttft': 1, 'itl': 0.05})\n"
    "session.dashboard()",
]


def test_long_names_leave_every_number_in_its_place(tmp_path: Path):
    folder, home = tmp_path / "notebooks", tmp_path / "home"
    shots = Path(os.environ.get("LAB_SCREENSHOTS", tmp_path / "screenshots"))
    for place in (folder, home, shots):
        place.mkdir(parents=True, exist_ok=True)
    (folder / "names.ipynb").write_text(notebook(NAMED))
    with jupyter(folder, home) as url, browser(shots) as page:
        open_notebook(page, url.format("names.ipynb"))
        run_all(page, 60)
        live = page.locator(".lab-live")
        live.locator("canvas.lab-main").wait_for(timeout=20_000)
        live.get_by_role("button", name="Start").click()
        page.wait_for_selector(".lab-live[data-state=finished]", timeout=60_000)
        page.wait_for_timeout(500)
        shoot(page, live, shots / "names.png")
        overflow = "e => e.scrollWidth - e.clientWidth"
        assert live.locator(".lab-table-wrap").evaluate(overflow) <= 0, "numbers are cut off"
        assert live.evaluate(overflow) <= 0 and live.locator(".lab-scrub").evaluate(overflow) <= 0
        boxes = [part.bounding_box() for part in live.locator(".lab-scrub > *").all()]
        assert all(a["x"] + a["width"] <= b["x"] for a, b in zip(boxes, boxes[1:], strict=False))
        names = live.locator("tbody th .lab-name")
        assert [names.nth(i).get_attribute("title") for i in range(3)] == [names.nth(i).inner_text() for i in range(3)]
        assert "60 of 60 refused: request 0 needs" in live.locator(".lab-losses").inner_text()
        kept = page.locator("[class^=lab-kept-]")
        assert kept.count() == 1 and not kept.is_visible(), "shown twice"
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(1000)
        saved = json.loads((folder / "names.ipynb").read_text())["cells"][1]["outputs"]
        assert "<svg" in "".join(saved[1]["data"]["text/html"]) and len(json.dumps(saved)) < 1_500_000
        live.evaluate("e => e.remove()")  # without a kernel there is no widget
        assert kept.is_visible()
        shoot(page, kept, shots / "kept.png")
        assert page.problems == []
