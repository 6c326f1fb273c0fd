"""Asking the kernel of an open notebook, and the browser about itself."""

from __future__ import annotations

import json
from typing import Any


def ask_kernel(page: Any, code: str) -> Any:
    """Run code in the kernel of the notebook that is open; what it prints must be JSON, and is returned."""
    text = page.evaluate(
        """async code => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({ code, store_history: false });
            const said = [];
            future.onIOPub = message => {
                if (message.header.msg_type === "stream") said.push(message.content.text);
                if (message.header.msg_type === "error") said.push(message.content.traceback.join("\\n"));
            };
            await future.done;
            return said.join("");
        }""",
        code,
    )
    try:
        return json.loads(text)
    except ValueError:
        raise AssertionError(f"the kernel said: {text}") from None


def heap(page: Any) -> float:
    """Megabytes of JavaScript objects that are in use after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return metrics["JSHeapUsedSize"] / 1e6
