"""A radix tree drawn from left to right, one frame per change, two frames beside each other where they fit."""

from __future__ import annotations

from collections.abc import Sequence

from lab.course.svg_page import Page
from lab.course.tiny_tree import Branch, Frame
from lab.live import style

LINE, BOX, LETTER, GAP = 27, 20, 6.6, 26
COLORS = {"new": style.ORANGE, "matched": style.SKY, "gone": "none", "": "none"}


def draw(frames: Sequence[Frame]) -> Page:
    """All frames, one below the other."""
    page, top = Page(), 16.0
    for number, frame in enumerate(frames, 1):
        page.text(10, top, f"{number}. {frame.title}", bold=True)
        leaves = sum(root.leaves for root in frame.roots) or 1
        middle = top + 10 + leaves * LINE / 2
        page.box(14, middle - BOX / 2, 22, BOX)
        page.text(25, middle + 4, "∅", "middle")
        place = top + 10.0
        for root in frame.roots:
            _branch(page, root, 36 + GAP, place, (36, middle))
            place += root.leaves * LINE
        top += 10 + leaves * LINE + 22
    _legend(page, top)
    return page


def _branch(page: Page, branch: Branch, x: float, top: float, parent: tuple[float, float]) -> None:
    middle = top + branch.leaves * LINE / 2
    words = branch.label + (f"  ({branch.locks} in use)" if branch.locks else "")
    width = LETTER * len(words) + 14
    gone = branch.mark == "gone"
    page.line(*parent, x, middle)
    border = style.VERMILLION if gone else style.GREEN if branch.locks else style.INK
    page.box(x, middle - BOX / 2, width, BOX, COLORS[branch.mark], border, dashed=gone)
    ink = "#000000" if COLORS[branch.mark] != "none" else style.VERMILLION if gone else style.INK
    page.text(x + 7, middle + 4, words, color=ink)
    for child in branch.children:
        _branch(page, child, x + width + GAP, top, (x + width, middle))
        top += child.leaves * LINE


def _legend(page: Page, y: float) -> None:
    x = 14.0
    for words, mark, border in (
        ("new", "new", style.INK),
        ("matched", "matched", style.INK),
        ("given up, or cut short", "gone", style.VERMILLION),
        ("in use: cannot be evicted", "", style.GREEN),
    ):
        page.box(x, y - 11, 20, 14, COLORS[mark], border, dashed=mark == "gone")
        page.text(x + 26, y, words)
        x += 46 + 7 * len(words)
