"""Small SVG pictures of what the dashboard draws on its canvases: latencies so far, and the block map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from lab.live import style
from lab.live.blocks import Holding, blocks_of

WIDTH, HALF, HEIGHT, LEFT = 860, 420, 150, 40
CELLS = 1024  # blocks drawn one by one; of larger pools only the sums are said


def svg(width: float, height: float, alt: str, parts: Sequence[str]) -> str:
    """A picture with its alt text."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" font-size="11" fill="{style.INK}"'
    said = escape(alt)
    return (
        f'<svg {size} role="img" aria-label="{said}" style="max-width:100%"><title>{said}</title>{"".join(parts)}</svg>'
    )


def cdf(title: str, curves: Sequence[tuple[str, str, Sequence[float]]], limit: float | None = None) -> str:
    """Cumulative shares. `curves` are (name, colour, sorted values in seconds); empty text where there are none."""
    curves = [curve for curve in curves if curve[2]]
    if not curves:
        return ""
    longest = max(values[-1] for _, _, values in curves)
    end = max(longest, limit or 0.0) * 1.05 or 1.0
    bottom, room = HEIGHT - 26, HALF - LEFT - 20

    def x(value: float) -> float:
        return LEFT + value / end * room

    def y(share: float) -> float:
        return bottom - share * (bottom - 26)

    parts = [f'<text x="0" y="14" font-weight="600">{escape(title)}</text>']
    parts += [f'<text x="{LEFT - 5}" y="{y(s) + 4:.0f}" text-anchor="end">{s:.0%}</text>' for s in (0, 0.5, 1)]
    parts += [f'<text x="{x(end * t):.0f}" y="{HEIGHT - 8}">{style.number(end * t)} s</text>' for t in (0, 0.5, 0.9)]
    if limit:
        parts.append(f'<path d="M{x(limit):.1f} 20V{bottom}" stroke="{style.INK}" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{x(limit) - 3:.1f}" y="32" text-anchor="end">SLO</text>')
    said = []
    for name, color, values in curves:
        points = "".join(f"H{x(v):.1f}V{y((i + 1) / len(values)):.1f}" for i, v in enumerate(values))
        parts.append(f'<path d="M{LEFT} {bottom}{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        said.append(
            f"{name}: half within {style.number(values[(len(values) - 1) // 2])} s, all within {values[-1]:.3g} s"
        )
    return svg(HALF, HEIGHT, f"{title}, cumulative. {'; '.join(said)}.", parts)


def name(request: int) -> str:
    """Requests are counted from 1; further samples of a prompt say so."""
    sample, number = divmod(request, 1 << 32)
    return f"{number + 1}{f' (sample {sample + 1})' if sample else ''}"


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(colour, words) as a line of swatches."""
    box = "display:inline-block;width:12px;height:10px;margin:0 5px 0 14px;background:"
    return "".join(f"<span><i style='{box}{color}'></i>{escape(words)}</span> " for color, words in entries)


def block_words(holding: Holding) -> str:
    """The block map in a sentence."""
    counts, index = holding.counts(), holding.index
    when = f"{'during' if holding.under_way else 'after'} step {index}" if index >= 0 else "before the first step"
    shares = sorted(holding.shares, key=lambda share: -len(list(blocks_of(share.runs))))[:3]
    most = ", ".join(f"{sum(share.runs[1::2])} of request {name(share.request)}" for share in shares)
    return (
        f"{holding.num_blocks} blocks of {holding.block_size} tokens {when}: {counts['own']} held by one request, "
        f"{counts['shared']} shared, {counts['cached']} kept by the prefix cache, {counts['free']} free"
        f"{f', the largest {most}' if most else ''}"
    )


def block_map(name: str, holding: Holding) -> str:
    """Every block as a square in the colour of its owner; empty text for pools too large to draw."""
    if holding.num_blocks > CELLS:
        return ""
    cell = 12 if holding.num_blocks <= 300 else 8
    columns = (WIDTH - 10) // cell
    holders, cached = holding.holders(), set(blocks_of(holding.cached))
    looks: dict[Any, list[int]] = {}
    for block in range(holding.num_blocks):
        looks.setdefault(_look(holders.get(block, ()), block in cached), []).append(block)
    parts = []
    for look, blocks in looks.items():
        squares = "".join(
            f"M{b % columns * cell} {b // columns * cell + 2}h{cell - 1}v{cell - 1}h-{cell - 1}z" for b in blocks
        )
        parts.append(f'<path d="{squares}" {look}/>')
    height = -(-holding.num_blocks // columns) * cell + 4
    return svg(WIDTH, height, f"Block map of {name}. {block_words(holding)}.", parts)


def _look(requests: Sequence[int], cached: bool) -> str:
    if len(requests) > 1:
        return 'fill="currentColor"'
    if requests:
        return f'fill="{style.OWNER_COLORS[requests[0] % len(style.OWNER_COLORS)]}"'
    if cached:
        return f'fill="{style.KIND["cached"].color}" fill-opacity=".35"'
    return f'fill="{style.GRID}"'
