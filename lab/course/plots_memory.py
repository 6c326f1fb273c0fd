"""Pictures of notebooks 05, 06 and 08, each with alt text and a table made from the same numbers.

Every function shows its picture; put the call last in a cell. Colours and clock names come from `lab.live.style`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lab.course import draw_blocks, draw_tree, pcie
from lab.course.block_map import BlockMap
from lab.course.families import wait_of
from lab.course.kv_use import KINDS
from lab.course.order_grid import Cell
from lab.course.svg_page import show_page
from lab.course.tiny_tree import TinyTree, lines
from lab.live import style
from lab.live.show import show
from lab.metrics import Report

SYMBOLS = ("circle", "diamond", "square", "cross", "circle", "diamond")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid")

#: The ends of the range in the PagedAttention paper: share of KV memory that holds tokens, in percent.
PAPER = {"reserved:max": 20.4, "reserved:oracle": 38.2}


# -- notebook 05 ------------------------------------------------------------------------------------------------
def block_maps(maps: Sequence[BlockMap], columns: int = 32) -> None:
    """The pool at several moments, one box per block."""
    last = maps[-1]
    alt = (
        f"The pool of {len(last.owners)} blocks of {last.block_size} tokens at {len(maps)} moments. "
        f"In the last one {len(last.owners) - last.free} blocks are held and {last.free} are free."
    )
    show_page(draw_blocks.draw(maps, columns), alt, draw_blocks.words(maps))


def pool_use(uses: Mapping[str, Mapping[str, float]]) -> None:
    """What the slots are used for while requests wait, one bar per kind of memory; the paper's ends as marks."""
    figure, names = go.Figure(), list(uses)
    looks = (
        {"color": style.BLUE},
        {"color": style.SKY, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}},
        {"color": style.VERMILLION, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}},
        {"color": "#9aa0a6"},
    )
    for kind, look in zip(KINDS, looks, strict=True):
        shares = [round(100 * uses[name][kind], 1) for name in names]
        hover = f"%{{y}}: %{{x}} % {kind}<extra></extra>"
        figure.add_bar(orientation="h", y=names, x=shares, name=kind, marker=look, hovertemplate=hover)
    marks = {name: share for name, share in PAPER.items() if name in names}
    figure.add_scatter(
        x=list(marks.values()),
        y=list(marks),
        mode="markers",
        name="tokens in the paper",
        marker={"color": style.INK, "symbol": "diamond", "size": 12},
    )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="share of all slots (%, simulated, while requests wait)", range=[0, 100])
    figure.update_yaxes(autorange="reversed")
    rows = [
        {"memory": name} | {f"{kind} (%)": round(100 * uses[name][kind], 1) for kind in KINDS} | _paper(name)
        for name in names
    ]
    ends = ", ".join(f"{row['memory']} {row['tokens (%)']} %" for row in rows)
    alt = f"Share of the slots that hold a token while requests wait (simulated): {ends}. In the paper 20.4 to 38.2 %."
    _show(figure, "What the KV memory is used for", alt, rows, height=320)


def _paper(name: str) -> dict[str, Any]:
    return {"tokens in the paper (%)": PAPER.get(name)}


def block_sizes(rows: Sequence[Mapping[str, float]]) -> None:
    """Waste over the block size."""
    figure = go.Figure()
    sizes = [row["block size"] for row in rows]
    waste = [row["waste (%)"] for row in rows]
    figure.add_scatter(x=sizes, y=waste, mode="lines+markers", name="waste", **_line(0))
    figure.update_xaxes(title="tokens per block", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    figure.update_yaxes(title="held slots without a token (%)", rangemode="tozero")
    alt = (
        f"Share of held slots without a token over the block size: from {waste[0]} % with blocks of {sizes[0]} to "
        f"{waste[-1]} % with blocks of {sizes[-1]} (simulated)."
    )
    _show(figure, "Large blocks waste their ends", alt, [dict(row) for row in rows], height=320)


def crossover(contexts: Sequence[int] = (256, 1024, 4096)) -> None:
    """Swapping against computing again, over the block size; both divided by the tokens concerned."""
    sizes, figure = [1, 2, 4, 8, 16, 32, 64, 128], go.Figure()
    context = contexts[1]
    for index, (name, link) in enumerate(pcie.LINKS.items()):
        each = [1000 * pcie.swap_s(context, size, link) / context for size in sizes]
        figure.add_scatter(x=sizes, y=each, mode="lines+markers", name=f"swap, {name}", **_line(index + 1))
    again = [1000 * pcie.recompute_s(context) / context] * len(sizes)
    figure.add_scatter(x=sizes, y=again, mode="lines+markers", name="compute again", **_line(0))
    figure.update_xaxes(title="tokens per block", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    figure.update_yaxes(title="ms per token (simulated)", type="log", dtick=1)
    rows = [
        {"block size": size}
        | {f"swap {n}, {name} (ms)": round(1000 * pcie.swap_s(n, size, link)) for name, link in pcie.LINKS.items()
           for n in contexts}
        for size in sizes
    ]  # fmt: skip
    rows.append(
        {"block size": "compute again"}
        | {f"swap {n}, PCIe 4 (ms)": round(1000 * pcie.recompute_s(n)) for n in contexts}
    )
    where = ", ".join(f"{name} from blocks of {pcie.crossover(context, link)}" for name, link in pcie.LINKS.items())
    alt = (
        f"Milliseconds per token to swap a context of {context} tokens out and in, falling with the block size, "
        f"against the constant cost of computing it again ({again[0]:.2f} ms). Swapping is cheaper: {where}."
    )
    _show(figure, "Small blocks make slow copies", alt, rows)


def free_blocks(reports: Mapping[str, Report]) -> None:
    """Free blocks over time; a mark for each preemption."""
    figure, rows = go.Figure(), []
    for index, (name, report) in enumerate(reports.items()):
        steps = list(report.trace)
        line = _line(index)
        turns = [
            step
            for before, step, after in zip([None, *steps], steps, [*steps[1:], None], strict=False)
            if None in (before, after) or not before.free == step.free == after.free
        ]
        figure.add_scatter(
            x=[round(step.end, 3) for step in turns],
            y=[step.free for step in turns],
            mode="lines",
            name=name,
            line=line["line"],
        )
        when = [(step.end, step.free) for step in steps for event in step.events if event.kind == "preempted"]
        figure.add_scatter(
            x=[time for time, _ in when],
            y=[free for _, free in when],
            mode="markers",
            name=f"{name}: preemption",
            marker={"color": style.policy_color(index), "symbol": SYMBOLS[index], "size": 11},
        )
        rows.append({"run": name, "preemptions": report.preemptions, "fewest free": min(step.free for step in steps)})
        rows[-1] |= {"tokens computed again": report.recomputed_tokens, "ends after (s)": round(report.duration_s, 2)}
    clock = style.clock_name(next(iter(reports.values())).measured)
    figure.update_xaxes(title=f"time (s, {clock})", rangemode="tozero")
    figure.update_yaxes(title="free blocks", rangemode="tozero")
    alt = "Free blocks over time. " + " ".join(
        f"{row['run']}: {row['preemptions']} preemptions, ends after {row['ends after (s)']} s." for row in rows
    )
    _show(figure, "Memory ends", alt, rows)


# -- notebook 06 ------------------------------------------------------------------------------------------------
def trees(tree: TinyTree) -> None:
    """Every change of a small radix tree, one frame each."""
    alt = f"A radix tree after each of {len(tree.frames)} changes. " + "; ".join(f.title for f in tree.frames) + "."
    show_page(draw_tree.draw(tree.frames), alt, lines(tree.frames))


def computed_and_cached(reports: Mapping[str, Mapping[str, Report]]) -> None:
    """Tokens computed without a cache, and with one beside those taken from it, per workload."""
    figure, rows = go.Figure(), []
    for name, runs in reports.items():
        without, cached = runs["none"], runs["radix"]
        rows.append({"workload": name, "computed without": without.computed_tokens})
        rows[-1] |= {"computed with": cached.computed_tokens, "from the cache": cached.cached_tokens}
    names = [row["workload"] for row in rows]
    for kind, look in (
        ("computed with", {"color": style.BLUE}),
        ("from the cache", {"color": style.GREEN, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}}),
    ):
        figure.add_bar(orientation="h", y=names, x=[row[kind] for row in rows], name=kind, marker=look)
    figure.add_scatter(
        x=[row["computed without"] for row in rows],
        y=names,
        mode="markers",
        name="computed without a cache",
        marker={"color": style.INK, "symbol": "diamond", "size": 11},
    )
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="tokens (counted)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    alt = "Tokens per workload. " + " ".join(
        f"{row['workload']}: {row['computed without']} computed without a cache, {row['computed with']} with, "
        f"{row['from the cache']} from the cache." for row in rows
    )  # fmt: skip
    _show(figure, "What the cache saves, it saves exactly", alt, rows)


def hit_curve(rates: Mapping[int, float], best: float) -> None:
    """Share of prompt tokens found over the size of the pool, and the most that could be found."""
    figure, sizes = go.Figure(), list(rates)
    shares = [round(100 * rate, 1) for rate in rates.values()]
    figure.add_scatter(x=sizes, y=shares, mode="lines+markers", name="pool of this size", **_line(1))
    figure.add_hline(
        y=100 * best,
        line={"color": style.INK, "width": 1.5, "dash": "dash"},
        annotation_text="nothing is ever forgotten",
        annotation_position="top left",
    )
    figure.update_xaxes(title="blocks of 512 tokens", type="log", tickvals=sizes, ticktext=[f"{n:,}" for n in sizes])
    figure.update_yaxes(title="prompt tokens found (%)", range=[0, 130 * best])
    rows = [{"blocks": size, "found (%)": share} for size, share in zip(sizes, shares, strict=True)]
    alt = (
        f"Share of prompt tokens found in the cache over the pool's size: {shares[0]} % with {sizes[0]} blocks, "
        f"{shares[-1]} % with {sizes[-1]:,}; at most {100 * best:.1f} % could be found."
    )
    _show(figure, "How much memory a cache needs", alt, rows)


def first_tokens(reports: Mapping[str, Report]) -> None:
    """TTFT of every request, run by run."""
    figure = go.Figure()
    for index, (name, report) in enumerate(reports.items()):
        marker = {"color": style.policy_color(index), "symbol": SYMBOLS[index], "size": 11}
        times = [each.ttft for each in report.times.values()]
        figure.add_scatter(x=list(report.times), y=times, mode="markers", name=name, marker=marker)
    clock = style.clock_name(next(iter(reports.values())).measured)
    figure.update_xaxes(title="request, by arrival")
    figure.update_yaxes(title=f"time to first token (s, {clock})", rangemode="tozero")
    some = next(iter(reports.values()))
    rows = [
        {"request": id} | {f"{name} (s)": round(report.times[id].ttft, 3) for name, report in reports.items()}
        for id in some.times
    ]
    middles = ", ".join(f"{name} {report.ttft_s.p50:.2f} s" for name, report in reports.items())
    alt = f"Time to first token of {len(rows)} requests ({clock}). Medians: {middles}."
    _show(figure, "When does each first token come?", alt, rows)


# -- notebook 08 ------------------------------------------------------------------------------------------------
def all_orders(hits: Sequence[int], marks: Mapping[str, int]) -> None:
    """How many orders of a small batch find how many tokens; where some orders stand."""
    counts = Counter(hits)
    values, figure = sorted(counts), go.Figure()
    figure.add_bar(x=values, y=[counts[value] for value in values], name="orders", marker={"color": style.SKY})
    for index, (name, value) in enumerate(marks.items()):
        figure.add_scatter(
            x=[value], y=[max(counts.values()) * (1.08 + 0.1 * index)], mode="markers", name=f"{name}: {value}",
            marker={"color": style.policy_color(index), "symbol": SYMBOLS[index], "size": 12},
        )  # fmt: skip
    figure.update_xaxes(title="prompt tokens taken from the cache (counted)")
    figure.update_yaxes(title="orders", rangemode="tozero")
    where = ", ".join(f"{name} {value}" for name, value in marks.items())
    alt = (
        f"All {len(hits)} orders of {_people(hits)} prompts by the tokens they find: from {values[0]} to {values[-1]}; "
        f"{counts[values[-1]]} orders reach the most. {where}."
    )
    _show(figure, "Every possible order", alt, [{"tokens found": value, "orders": counts[value]} for value in values])


def _people(hits: Sequence[int]) -> int:
    """n of which n! is the number of orders."""
    number, product = 1, 1
    while product < len(hits):
        number += 1
        product *= number
    return number


def stranger(reports: Mapping[str, Report], request: int) -> None:
    """How long the one that shares nothing waits, beside the median of all."""
    figure, rows = go.Figure(), []
    for name, report in reports.items():
        wait = wait_of(report, request)
        rows.append({"order": name, "the stranger waits (s)": round(wait, 2)})
        rows[-1] |= {"TTFT, median of all (s)": round(report.ttft_s.p50, 2)}
        rows[-1] |= {"TTFT, p95 of all (s)": round(report.ttft_s.p95, 2)}
    names = [row["order"] for row in rows]
    for key, look in (
        ("the stranger waits (s)", {"color": style.VERMILLION}),
        ("TTFT, median of all (s)", {"color": style.BLUE}),
    ):
        shares = [row[key] for row in rows]
        figure.add_bar(orientation="h", y=names, x=shares, text=shares, name=key.removesuffix(" (s)"), marker=look)
    figure.update_layout(barmode="group", bargap=0.3)
    figure.update_xaxes(title="s (simulated)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    alt = "How long a request that shares nothing waits, by order: " + ", ".join(
        f"{row['order']} {row['the stranger waits (s)']} s" for row in rows
    )
    _show(figure, "One stranger in a stream that shares", alt + ".", rows, height=150 + 46 * len(rows))


def seats_and_orders(cells: Mapping[tuple[str, int], Cell]) -> None:
    """Hit rate and throughput over the seats, one line per order."""
    figure = make_subplots(cols=2, rows=1, subplot_titles=("prompt tokens found (%)", "output tokens per second"))
    names, seats = list(dict.fromkeys(name for name, _ in cells)), sorted({size for _, size in cells})
    for index, name in enumerate(names):
        look = {"mode": "lines+markers", "name": name, "legendgroup": name, **_line(index)}
        hits = [round(100 * cells[name, size].found, 1) for size in seats]
        speeds = [round(cells[name, size].tokens_per_s, 1) for size in seats]
        figure.add_scatter(x=seats, y=hits, **look, row=1, col=1)
        figure.add_scatter(x=seats, y=speeds, **look, showlegend=False, row=1, col=2)
    figure.update_xaxes(title="seats", type="log", tickvals=seats, ticktext=[str(size) for size in seats])
    figure.update_yaxes(rangemode="tozero")
    rows = [
        {"order": name, "seats": size, "found (%)": round(100 * cell.found, 1), "tokens/s": round(cell.tokens_per_s, 1)}
        for (name, size), cell in cells.items()
    ]
    last = seats[-1]
    ends = ", ".join(f"{name} {cells[name, last].tokens_per_s:.0f}" for name in names)
    alt = (
        f"Hit rate and throughput (simulated) with {seats[0]} to {last} seats for {len(names)} orders. "
        f"Tokens per second with {last} seats: {ends}."
    )
    _show(figure, "Seats in the batch and sharing by order", alt, rows)


# -- inside -----------------------------------------------------------------------------------------------------
def _line(index: int) -> dict[str, Any]:
    return {
        "line": {"color": style.policy_color(index), "width": 3, "dash": DASHES[index % len(DASHES)]},
        "marker": {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9, "color": style.policy_color(index)},
    }


def _show(figure: go.Figure, title: str, alt: str, rows: list[dict[str, Any]], height: int = 360) -> None:
    panels = bool(figure.layout.annotations) and figure.layout.annotations[0].yref == "paper"
    figure.update_layout(title=title, height=height + 24 * panels)
    if panels:
        figure.update_layout(legend={"y": 1 + 36 / height}, margin={"t": 100})
    show(figure, alt=alt, table=rows)
