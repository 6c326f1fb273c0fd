"""One output that survives everywhere: an interactive plotly chart, a still picture, and a table, in one bundle.

JupyterLab and VS Code take the chart; a page without a kernel (nbconvert, GitHub) takes the SVG picture with its
alt text; a terminal takes the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.live.names import plain
from lab.live.svg import to_svg
from lab.summary import aligned


def bundle(figure: Any, alt: str = "", table: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata) of the output. `table` is text, or rows as dicts; without one the alt text stands alone.

    Figures of `lab.live.figures` carry both; what is given here wins. Raises ValueError without an alt text.
    """
    from lab.live.figures import alt_of, arrange, template

    own_alt, own_table = alt_of(figure)
    alt, table = alt.strip() or own_alt, own_table if table is None else table
    if not alt:
        raise ValueError("a picture needs an alt text: one or two sentences that say what it shows, with the numbers")
    figure = arrange(type(figure)(figure).update_layout(template=template(), meta=None))
    record = figure.to_plotly_json()
    title = record.get("layout", {}).get("title")
    heading = title.get("text") if isinstance(title, dict) else title
    text = "\n".join(part for part in (plain(heading or ""), alt, as_text(table)) if part)
    data = {
        "application/vnd.plotly.v1+json": _jsonable(figure),
        "image/svg+xml": to_svg(_with_bars(record), alt),
        "text/plain": text,
    }
    return data, {"image/svg+xml": {"alt": alt}}


def show(figure: Any, *, alt: str = "", table: Any = None) -> None:
    """Display `figure` (plotly) as described above; in a terminal, print its table."""
    data, metadata = bundle(figure, alt, table)
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        get_ipython = None
    if get_ipython is None or get_ipython() is None:
        print(data["text/plain"])
    else:
        display(data, metadata=metadata, raw=True)


def as_text(table: Any) -> str:
    """Rows as an aligned text table; text as it is."""
    if table is None or isinstance(table, str):
        return table or ""
    rows: Sequence[Mapping[str, Any]] = list(table)
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    return "\n".join(line.rstrip() for line in aligned(cells))


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _jsonable(figure: Any) -> dict[str, Any]:
    """What plotly's front end reads."""
    import json

    record = json.loads(figure.to_json())
    record.setdefault("config", {"displaylogo": False, "responsive": True})
    return record


def _with_bars(record: dict[str, Any]) -> dict[str, Any]:
    """Stacked axes need to know all bars at once."""
    layout = dict(record.get("layout") or {})
    layout["_bars"] = [trace for trace in record.get("data", []) if trace.get("type") == "bar"]
    return {"data": record.get("data", []), "layout": layout}
