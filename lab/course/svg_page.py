"""A still picture made by hand: boxes, lines and words, with a name for those who cannot see it."""

from __future__ import annotations

from html import escape
from typing import Any

from lab.live.show import as_text
from lab.live.style import FONT, INK

WIDTH = 860


class Page:
    """Collects shapes; its height grows with what is drawn. Colours are readable on light and dark.

    Shapes of one look are one path and words of one look one group, so that hundreds of boxes stay small.
    """

    def __init__(self, width: int = WIDTH):
        self.width, self.height = width, 0.0
        self.shapes: dict[str, list[str]] = {}  # look -> pieces of a path, in the order in which looks came
        self.words: dict[str, list[str]] = {}
        self.hatches: dict[str, str] = {}

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", size: int = 12, bold: bool = False, color: str = INK
    ) -> None:
        """One line of text, its baseline at y."""
        weight = ' font-weight="600"' if bold else ""
        look = f'text-anchor="{anchor}" font-size="{size}" fill="{color}"{weight}'
        self.words.setdefault(look, []).append(f'<text x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>')
        self.height = max(self.height, y + 6)

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = "none", line: str = INK, dashed: bool = False
    ) -> None:
        """A rectangle with a border."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._add(f'fill="{fill}" stroke="{line}"{dash}', f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z")
        self.height = max(self.height, y + h + 2)

    def fill(self, x: float, y: float, w: float, h: float, color: str) -> None:
        """A rectangle without one."""
        self._add(f'fill="{color}"', f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z")

    def line(self, x0: float, y0: float, x1: float, y1: float, color: str = INK) -> None:
        """A soft curve from left to right."""
        bend = (x0 + x1) / 2
        path = f"M{x0:.1f} {y0:.1f}C{bend:.1f} {y0:.1f} {bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        self._add(f'fill="none" stroke="{color}"', path)

    def _add(self, look: str, piece: str) -> None:
        self.shapes.setdefault(look, []).append(piece)

    def hatch(self, color: str) -> str:
        """A hatched fill of that colour."""
        return f"url(#{self.hatches.setdefault(color, f'hatch{len(self.hatches)}')})"

    def svg(self, alt: str) -> str:
        """The picture, with `alt` as its accessible name."""
        patterns = "".join(
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" fill="{color}" fill-opacity=".22"/>'
            f'<rect width="1.6" height="5" fill="{color}" fill-opacity=".8"/></pattern>'
            for color, name in self.hatches.items()
        )
        height = int(self.height + 4)
        drawn = "".join(f'<path {look} d="{"".join(pieces)}"/>' for look, pieces in self.shapes.items())
        drawn += "".join(f"<g {look}>{''.join(words)}</g>" for look, words in self.words.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}" '
            f'height="{height}" role="img" aria-label="{escape(alt)}" font-family="{escape(FONT)}" font-size="12">'
            f"<title>{escape(alt)}</title><defs>{patterns}</defs>{drawn}</svg>"
        )


def show_page(page: Page, alt: str, twin: Any) -> None:
    """Display the picture with its text twin; in a terminal, print the twin."""
    svg, text = page.svg(alt), f"{alt}\n{as_text(twin)}"
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(text)
    else:
        data = {"image/svg+xml": svg, "text/plain": text}
        display(data, metadata={"image/svg+xml": {"alt": alt}}, raw=True)
