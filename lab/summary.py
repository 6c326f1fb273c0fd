"""Reports as a table for people: metrics down, runs across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.metrics import Report


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


ROWS: tuple[tuple[str, Any], ...] = (
    ("output tokens/s", lambda r: f"{r.output_tokens_per_s:.1f}"),
    ("TTFT p50", lambda r: _seconds(r.ttft_s.p50)),
    ("TTFT p95", lambda r: _seconds(r.ttft_s.p95)),
    ("TPOT p50", lambda r: _seconds(r.tpot_s.p50)),
    ("ITL p95", lambda r: _seconds(r.itl_s.p95)),
    ("end-to-end p50", lambda r: _seconds(r.e2e_s.p50)),
    ("requests finished", lambda r: f"{r.finished} of {r.requests}"),
    ("steps", lambda r: f"{r.steps}"),
    ("requests per step", lambda r: f"{r.mean_batch:.2f}"),
    ("tokens computed", lambda r: f"{r.computed_tokens}"),
    ("tokens padded", lambda r: f"{r.padded_tokens}"),
    ("wasted slots", lambda r: f"{r.wasted_slots}"),
    ("preemptions", lambda r: f"{r.preemptions}"),
    ("peak blocks", lambda r: f"{r.peak_blocks}"),
    ("busy", lambda r: f"{100 * r.utilisation:.0f} %"),
)
WHERE_KNOWN: tuple[tuple[str, Any], ...] = (  # shown when at least one run has it
    ("MFU", lambda r: None if r.mfu is None else f"{100 * r.mfu:.1f} %"),
    ("MBU", lambda r: None if r.mbu is None else f"{100 * r.mbu:.1f} %"),
)


def aligned(lines: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Rows of cells as lines of text, columns two spaces apart and flush right, the first `left` of them flush left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            c.ljust(w) if place < left else c.rjust(w) for place, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]


def summary_table(reports: dict[str, Report], extra: dict[str, dict[str, str]] | None = None) -> str:
    """Metrics down, runs across. `extra` adds rows: label -> {run name: text}."""
    names = list(reports)
    lines = [("", *names)]
    lines += [(label, *(show(report) for report in reports.values())) for label, show in ROWS]
    for label, show in WHERE_KNOWN:
        shown = [show(report) for report in reports.values()]
        lines += [(label, *(cell or "–" for cell in shown))] if any(shown) else []
    lines += [(label, *(cells.get(name, "") for name in names)) for label, cells in (extra or {}).items()]
    text = aligned(lines, left=1)
    for name, report in reports.items():
        for request, why in list(report.refused.items())[:3]:
            text.append(f"refused ({name}): {why or f'request {request}'}")
        if len(report.refused) > 3:
            text.append(f"refused ({name}): {len(report.refused) - 3} more")
    clocks = {
        ("measured" if report.measured else "simulated") + f" ({report.clock} clock)" for report in reports.values()
    }
    return "\n".join([*text, "times: " + ", ".join(sorted(clocks))])
