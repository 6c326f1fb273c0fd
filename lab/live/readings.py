"""What a monitor reads: one value of one series, and where it comes from."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """One series' value now, in `unit`; `source` says in words what is measured, and by whom."""

    name: str
    value: float
    unit: str
    source: str
