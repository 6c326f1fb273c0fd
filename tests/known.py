"""Faults that are known and not yet mended. Each mark is strict: the test fails as soon as the fault is gone."""

from __future__ import annotations

import pytest


def fault(reason: str) -> pytest.MarkDecorator:
    """Expect the marked test to fail until somebody mends what `reason` says."""
    return pytest.mark.xfail(strict=True, reason=reason)


WRONG_KIND = fault("constructors check ranges, not kinds: NaN, fractions, bool and str pass or raise TypeError")
