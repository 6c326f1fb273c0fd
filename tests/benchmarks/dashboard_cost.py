"""What does watching cost? Output tokens per second with the dashboard against a client that only listens.

    python tests/benchmarks/dashboard_cost.py                    dashboard in a kernel, its messages read, not drawn
    python tests/benchmarks/dashboard_cost.py --browser          drawn by JupyterLab in a Chromium on the same cores

Rounds alternate within one kernel: "listens" is `lab.run` beside a thread that looks ten times a second how many steps
there are; "dashboard" is a live session with its widget. The aim, without a browser, is a median ratio of at least
0.95. Every request is there from the start, so that only the engine is the limit. Run it on a machine that does
nothing else; the spread of the rounds says whether it did.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AIM = 0.95
SETUP = """
import json, sys, threading, time
sys.path[:0] = [{root!r}]
import lab
from lab.live.session import Session
model = lab.load_model({model})
work = lab.chat_workload(requests={requests}, rate=1000.0, seed=0)
axes = dict(batching="continuous:8")

def listens():
    over, looks = threading.Event(), []
    def listen():
        while not over.wait(0.1): looks.append(threading.active_count())
    thread = threading.Thread(target=listen)
    thread.start()
    used = time.process_time()
    report = lab.run(work, model, clock="wall", **axes)
    used = time.process_time() - used
    over.set(); thread.join()
    return report, used

def dashboard():
    session = Session(work, model, name="cost", warm_up=False, **axes)
    shown = session.dashboard()
    display(shown)
    used = time.process_time()
    session.start(); session.wait(); session.stop()
    used = time.process_time() - used
    return session.report(next(iter(session.runs))), used

def say(found):
    report, used = found
    span = report.trace[-1].end - report.trace[0].start
    print(json.dumps([report.output_tokens / span, 1000 * used / report.output_tokens, report.steps]))
"""


@contextmanager
def kernel(setup: str) -> Iterator[Callable[[str], list[float]]]:
    """A kernel without a front end; yields a function that runs code and returns the JSON it prints."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str) -> list[float]:
        said: list[str] = []

        def hear(message: dict) -> None:
            content = message["content"]
            if message["msg_type"] == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            said.append(content.get("text", ""))

        client.execute_interactive(code, output_hook=hear, timeout=600)
        return json.loads("".join(said) or "[]")

    try:
        run(setup)
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@contextmanager
def lab_page(setup: str) -> Iterator[Callable[[str], list[float]]]:
    """The same in JupyterLab with a browser in front: the code is run as the notebook's last cell."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from jupyter_kernel import ask_kernel
    from jupyter_page import browser, jupyter, notebook, open_notebook, run_all

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "notebooks"
        folder.mkdir()
        (folder / "cost.ipynb").write_text(notebook([setup, ""]), encoding="utf-8")
        with jupyter(folder, Path(place)) as url, browser(Path(place)) as page:
            open_notebook(page, url.format("cost.ipynb"))

            def run(code: str) -> list[float]:
                page.evaluate(
                    """code => {
                        const cells = window.jupyterapp.shell.currentWidget.content.widgets;
                        cells[cells.length - 1].model.sharedModel.setSource(code);
                    }""",
                    code.replace("say(", "last = (", 1),
                )
                run_all(page, 600)
                return ask_kernel(page, "say(last)")

            yield run


def main() -> None:
    """Alternate the rounds and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of each kind")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--model", default="", help="what lab.load_model takes; by default its default")
    parser.add_argument("--browser", action="store_true", help="draw it, with JupyterLab and Chromium on these cores")
    options = parser.parse_args()
    setup = SETUP.format(root=str(ROOT), model=repr(options.model) if options.model else "", requests=options.requests)
    rates: dict[str, list[float]] = {"listens": [], "dashboard": []}
    works: dict[str, list[float]] = {"listens": [], "dashboard": []}
    place = lab_page(setup + "\nlast = None") if options.browser else kernel(setup)
    with place as run:
        for index in range(options.rounds + 1):  # the first of each kind warms up
            for kind in rates if index % 2 else reversed(rates):
                rate, work, steps = run(f"say({kind}())")
                note = "" if index else "  (not counted)"
                print(f"round {index} {kind:10} {rate:8.1f} tokens/s, {work:.2f} CPU ms/token, {steps} steps{note}")
                if index:
                    rates[kind].append(rate)
                    works[kind].append(work)
    ratios = [shown / alone for shown, alone in zip(rates["dashboard"], rates["listens"], strict=True)]
    middle, spread = statistics.median(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}"
    where = "with a browser on the same cores" if options.browser else "without a browser"
    print(f"dashboard / listens, {where}: median {middle:.3f} ({spread}), costs {100 * (1 - middle):.1f} %")
    work = statistics.median(b / a for a, b in zip(works["listens"], works["dashboard"], strict=True))
    print(
        f"CPU time of the kernel per token, dashboard / listens: median {work:.3f} (disturbed less by other programs)"
    )
    if not options.browser:
        print(f"aim: at least {AIM}: {'yes' if middle >= AIM else 'NO'}")


if __name__ == "__main__":
    main()
