"""Numbers a person passes in, checked once: a sentence that ends "…; it must be" and names the value."""

from __future__ import annotations

from math import isfinite
from typing import Any

from lab.errors import BadPolicy, LabError


def whole(value: Any, what: str, least: int = 1, error: type[LabError] = BadPolicy) -> int:
    """`value` if it is an int of at least `least`. bool, fractions and text are not whole numbers.

    `what` begins the sentence: "a pool of" gives "a pool of 0; it must be at least 1".
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{what} {value!r}; it must be a whole number")
    if value < least:
        raise error(f"{what} {value}; it must be at least {least}")
    return value


def real(value: Any, what: str, least: float = 0.0, error: type[LabError] = BadPolicy) -> float:
    """`value` if it is a finite number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise error(f"{what} {value!r}; it must be a finite number")
    if value < least:
        raise error(f"{what} {value}; it must be at least {least:g}")
    return value
