"""When is an answer the wanted one? By value and kind, and never by asking the answer whether it is."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from itertools import islice
from math import isclose
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 60, 60
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 8


def same(got: Any, want: Any, within: float = 0.0) -> bool:
    """True when `got` has the value of `want`.

    Lists, tuples, arrays and other sequences are equal when their items are; numbers of any kind when their
    values are, or differ by at most `within` (relative to `want`, and absolute around 0). A bool is no number, and an
    object with an `__eq__` of its own is equal to itself only.
    """
    got = plain(got)
    if want is None or isinstance(want, bool | str):
        return type(got) is type(want) and got == want
    if isinstance(want, int | float):
        number = type(got) in (int, float)
        return number and (got == want or isclose(got, want, rel_tol=within, abs_tol=within))
    if isinstance(want, Mapping):
        ours, theirs = dict(want), dict(got) if type(got) is dict else None
        return theirs is not None and set(theirs) == set(ours) and all(same(theirs[k], ours[k], within) for k in ours)
    if isinstance(want, set | frozenset):
        return type(got) in (set, frozenset) and set(got) == set(want)
    if isinstance(want, list | tuple):
        return _same_items(got, want, within)
    return got is want


def _same_items(got: Any, want: list[Any] | tuple[Any, ...], within: float) -> bool:
    if isinstance(got, str | Mapping | set | frozenset) or not isinstance(got, Iterable):
        return False
    items = list(islice(got, len(want) + 1))
    return len(items) == len(want) and all(same(g, w, within) for g, w in zip(items, want, strict=True))


def plain(value: Any) -> Any:
    """NumPy and torch values as Python's own; everything else unchanged."""
    home = type(value).__module__.partition(".")[0]
    return value.tolist() if home in ("numpy", "torch") and hasattr(value, "tolist") else value


def shown(value: Any) -> str:
    """A short repr of anything. Never raises, and shows no memory address."""
    try:
        if callable(value) and hasattr(value, "__name__"):
            return f"the function {value.__name__}" if not isinstance(value, type) else f"the class {value.__name__}"
        text = _SHORT.repr(plain(value))
        return f"a {type(value).__name__} object" if " at 0x" in text or text.startswith("<") else text
    except BaseException:
        return f"a {type(value).__name__} that cannot be shown"
