"""Small SVG pictures of what the dashboard draws on its canvases: latencies so far, and the block map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lab.live import style
from lab.live.blocks import Holding, blocks_of, cells
from lab.live.story import SENT_IDS

WIDTH, HALF, HEIGHT, LEFT = 860, 420, 150, 40
CELLS = 1024  # blocks drawn one by one; of larger pools a square stands for several


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
    """A request is called by its id, as in reports and errors; further samples of a prompt say so."""
    sample, number = divmod(request, 1 << 32)
    own = f"sent by hand (id {number})" if number >= SENT_IDS else str(number)
    return f"{own}{f' (sample {sample + 1})' if sample else ''}"


def swatch(kind: style.Kind) -> str:
    """The background of a swatch: hatched as in the pictures."""
    if not kind.hatched:
        return kind.color
    slope = 45 if kind.backward else -45
    return f"repeating-linear-gradient({slope}deg,{kind.color} 0 2px,{kind.color}55 2px 4px)"


def hatches() -> str:
    """Patterns for hatched kinds, for the beginning of a picture."""
    found = []
    for kind in style.KINDS:
        if kind.hatched:
            turn = -45 if kind.backward else 45
            found.append(
                f'<pattern id="lab-{kind.name}" width="4" height="4" patternUnits="userSpaceOnUse" '
                f'patternTransform="rotate({turn})"><rect width="4" height="4" fill="{kind.color}" '
                f'fill-opacity=".35"/><rect width="1.6" height="4" fill="{kind.color}"/></pattern>'
            )
    return f"<defs>{''.join(found)}</defs>"


def paint(kind: style.Kind) -> str:
    """What a shape of this kind is filled with."""
    return f"url(#lab-{kind.name})" if kind.hatched else kind.color


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(background, words) as a line of swatches."""
    box = "display:inline-block;width:12px;height:10px;margin:0 5px 0 14px;background:"
    return "".join(f"<span><i style='{box}{color}'></i>{escape(words)}</span> " for color, words in entries)


def moment(holding: Holding) -> str:
    """When it was so."""
    when = "during" if holding.under_way else "after"
    return f"{when} step {holding.index}" if holding.index >= 0 else "before the first step"


def block_words(holding: Holding) -> str:
    """The block map in a sentence."""
    counts = holding.counts()
    shares = sorted(holding.shares, key=lambda share: -len(list(blocks_of(share.runs))))[:3]
    most = ", ".join(f"{sum(share.runs[1::2])} of request {name(share.request)}" for share in shares)
    return (
        f"{holding.num_blocks} blocks of {holding.block_size} tokens {moment(holding)}: "
        f"{counts['own']} held by one request, {counts['shared']} shared, "
        f"{counts['cached']} kept by the prefix cache, {counts['free']} free"
        f"{f', the largest {most}' if most else ''}"
    )


def block_map(name: str, holding: Holding) -> str:
    """Every block as a square in the colour of its owner; in large pools a square stands for several neighbours."""
    squares = _squares(holding)
    cell = 12 if len(squares) <= 300 else 8
    columns = (WIDTH - 10) // cell
    looks: dict[str, list[int]] = {}
    for place, look in enumerate(squares):
        looks.setdefault(look, []).append(place)
    parts = []
    for look, blocks in looks.items():
        squares = "".join(
            f"M{b % columns * cell} {b // columns * cell + 2}h{cell - 1}v{cell - 1}h-{cell - 1}z" for b in blocks
        )
        parts.append(f'<path d="{squares}" {look}/>')
    height = -(-len(squares) // columns) * cell + 4
    return svg(WIDTH, height, f"Block map of {name}. {block_words(holding)}.", parts)


def per_square(holding: Holding) -> int:
    """Blocks that a square of the map stands for."""
    return -(-holding.num_blocks // CELLS)


def _squares(holding: Holding) -> list[str]:
    """How each square of the map looks."""
    if holding.num_blocks <= CELLS:
        holders, cached = holding.holders(), set(blocks_of(holding.cached))
        return [_look(holders.get(block, ()), block in cached) for block in range(holding.num_blocks)]
    found = []
    for repeat, own, shared, kept, owner in cells(holding, CELLS)["cells"]:
        most = (owner, owner) if shared > own else (owner,)  # what most of its blocks are
        held = own + shared and own + shared >= kept
        found += [_look(most if held else (), kept > 0)] * repeat
    return found


def _look(requests: Sequence[int], cached: bool) -> str:
    if len(requests) > 1:
        return 'fill="currentColor"'
    if requests:
        return f'fill="{style.OWNER_COLORS[requests[0] % len(style.OWNER_COLORS)]}"'
    if cached:
        return f'fill="{style.KIND["cached"].color}" fill-opacity=".35"'
    return f'fill="{style.GRID}"'
