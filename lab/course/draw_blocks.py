"""The block pool as a picture: one small box per block, coloured by owner, full as far as it holds tokens."""

from __future__ import annotations

from collections.abc import Sequence

from lab.course.block_map import BlockMap, name_of
from lab.course.svg_page import Page
from lab.live import style

COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.VERMILLION, style.YELLOW)
DARK = {style.BLUE, style.GREEN, style.VERMILLION}
SHARED = style.YELLOW
LEFT = 10


def color_of(request: int) -> str:
    """A colour per request; numbers in the boxes tell apart those that share one."""
    sample, parent = divmod(request, 1 << 32)
    return COLORS[(parent + sample) % len(COLORS)]


def draw(maps: Sequence[BlockMap], columns: int) -> Page:
    """One strip of boxes per snapshot, block 0 at the top left."""
    page, top = Page(), 18.0
    step = min(26.0, (page.width - 2 * LEFT) / columns)
    for each in maps:
        page.text(LEFT, top, caption(each), bold=True)
        for block in range(len(each.owners)):
            row, column = divmod(block, columns)
            _block(page, each, block, LEFT + column * step, top + 8 + 24 * row, step - 2)
        top += 8 + 24 * (-(-len(each.owners) // columns)) + 22
    top += 2
    x = float(LEFT)
    for words, fill, faint in (
        ("holds tokens", style.BLUE, False),
        ("held, no token yet", style.BLUE, True),
        ("free", "none", False),
    ):
        free = fill == "none"
        page.box(x, top - 11, 20, 14, fill, style.INK if free else style.BLUE, dashed=free, faint=faint)
        page.text(x + 26, top, words)
        x += 46 + 7 * len(words)
    page.text(x, top, "the number is the request; ×n: n requests share the block")
    return page


def caption(each: BlockMap) -> str:
    """What to read off the strip."""
    words = f"{each.title}: {len(each.owners) - each.free} blocks held, {each.free} free"
    words += f" (longest free run {each.longest_hole})" if each.free else ""
    return words + (f", {each.waiting} waiting" if each.waiting else "")


def _block(page: Page, each: BlockMap, block: int, x: float, y: float, width: float) -> None:
    owners, height = each.owners[block], 20
    if not owners:
        page.box(x, y, width, height, line=style.INK, dashed=True)
        return
    color = SHARED if len(owners) > 1 else color_of(owners[0])
    full = width * each.filled[block] / each.block_size
    page.box(x, y, width, height, color, color, faint=full < width)
    if 0 < full < width:
        page.box(x, y, full, height, color, "none")
    label = f"×{len(owners)}" if len(owners) > 1 else name_of(owners[0])
    dark = color in DARK and full > 0.55 * width
    ink = "#ffffff" if dark else "#000000" if full > 0.55 * width else style.INK
    page.text(x + width / 2, y + 14, label, "middle", 11, color=ink)


def words(maps: Sequence[BlockMap]) -> str:
    """The same as text: an owner per block, in brackets where it has no token yet, a dot where it is free."""
    lines = []
    for each in maps:
        cells = []
        for owners, filled in zip(each.owners, each.filled, strict=True):
            cell = "·" if not owners else f"×{len(owners)}" if len(owners) > 1 else name_of(owners[0])
            cells.append(f"({cell})" if owners and not filled else cell)
        lines += [caption(each), "  " + " ".join(cells)]
    return "\n".join(lines)
