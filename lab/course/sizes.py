"""Sizes of measured workloads: full for people, small for LAB_QUICK=1, which CI sets."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def quick(full: T, small: T) -> T:
    """`full`, or `small` where the environment says LAB_QUICK=1. Never in a cell whose output is checked."""
    return small if os.environ.get("LAB_QUICK", "") not in ("", "0") else full
