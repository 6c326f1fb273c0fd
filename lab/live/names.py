"""Names of runs in pictures: shown letter by letter, shortened to fit and still told apart, whole in the hover text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from textwrap import wrap

_MARKUP = re.compile(r"</?(?:b|i|em|strong|sub|sup|span|a|s|u)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# What plotly reads as markup (&, <, >), as a formula ($), or as a field of a template (%{).
_LITERAL = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("$"): "&#36;"}
LONGEST = 32  # characters of a name beside an axis, where a plot must still have room
IN_LEGEND = 60  # characters of a name in a legend, which has a line for it
LINE = 64  # characters of a line of hover text


def literal(text: object) -> str:
    """The text for plotly and for still pictures, so that both show every character as it is."""
    return str(text).translate(_LITERAL).replace("%{", "&#37;{")


def plain(text: str) -> str:
    """What a reader sees of a plotly text: its markup dropped, its entities as characters, one line."""
    return unescape(_MARKUP.sub("", _BREAK.sub(" ", text)))


def short(text: str, most: int = LONGEST) -> str:
    """At most `most` characters (3 or more): of a longer text the beginning and the end, which tell policies apart."""
    if len(text) <= most:
        return text
    head = most // 2
    return text[:head] + "…" + text[len(text) - (most - 1 - head) :]


def labels(names: Iterable[object], most: int = LONGEST) -> list[str]:
    """A literal label of at most `most` characters for each name, no two alike: those that would be get numbers."""
    whole = [str(name) for name in names]
    cut = [short(name, most) for name in whole]
    alike = {label for label in cut if cut.count(label) > 1}
    numbers = [f"{place}: " if label in alike else "" for place, label in enumerate(cut, 1)]
    pairs = zip(whole, numbers, strict=True)
    return [literal(number + short(name, max(3, most - len(number)))) for name, number in pairs]


def spelled(name: object) -> str:
    """The whole name for a hover text, literal, on as many lines as it takes."""
    return "<br>".join(map(literal, wrap(str(name), LINE, break_on_hyphens=False))) or literal(name)


def counted(count: int, thing: str, plural: str = "") -> str:
    """ "1 run", "2 runs"."""
    return f"{count:,} {thing if count == 1 else plural or thing + 's'}"
