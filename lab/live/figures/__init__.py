"""Figures of runs in one visual language: colours, units and clock names from `style`, legible on light and dark.

Each function takes reports (one, several by name, a comparison, or a sweep over loads) and returns a plotly Figure
that carries its alt text and its table; `lab.live.show(figure)` displays it with both, and with a still picture for
pages without a kernel.

one run            timeline, step_composition, kv_occupancy, efficiency (MFU and MBU), roofline
one recorder       utilisation (CPU, GPU)
several runs       comparison, latency_cdf, latencies, throughput_over_time, padding_waste
several loads      frontier, goodput
"""

from __future__ import annotations

from lab.live.figures.base import Runs, alt_of, arrange, clock_of, finish, reports_of, template
from lab.live.figures.compare import METRICS, compare_bars, comparison
from lab.live.figures.composition import batch_composition, decode_curve, step_composition, step_rows, step_tokens
from lab.live.figures.efficiency import efficiency
from lab.live.figures.kv import kv_occupancy
from lab.live.figures.latency import LATENCIES, latencies, latency_cdf
from lab.live.figures.loads import frontier, goodput
from lab.live.figures.over_time import throughput_over_time, utilisation
from lab.live.figures.roofline import roofline
from lab.live.figures.timeline import replay, timeline
from lab.live.figures.waste import padding_waste

#: Figures that one report is enough for: the names that `Report.figure` takes.
OF_ONE_RUN = (
    *("timeline", "step_composition", "kv_occupancy", "efficiency", "roofline"),
    *("latencies", "latency_cdf", "throughput_over_time", "padding_waste"),
)

__all__ = [
    "LATENCIES",
    "METRICS",
    "OF_ONE_RUN",
    "Runs",
    "alt_of",
    "arrange",
    "batch_composition",
    "clock_of",
    "compare_bars",
    "comparison",
    "decode_curve",
    "efficiency",
    "finish",
    "frontier",
    "goodput",
    "kv_occupancy",
    "latencies",
    "latency_cdf",
    "padding_waste",
    "replay",
    "reports_of",
    "roofline",
    "step_composition",
    "step_rows",
    "step_tokens",
    "template",
    "throughput_over_time",
    "timeline",
    "utilisation",
]
