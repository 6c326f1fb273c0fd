"""`lab.sweep`: the same requests under every combination of the values given, on all cores, as one table.

    rows = lab.sweep(work, model, {"batching": ["static:8", "continuous:8"], "rate": [1, 2, 4]}, slo={"ttft": 1})

Rows come in the order of the product, the last name changing fastest, however many processes compute them. A point
that cannot be computed has its reason under "error" and None for every metric; one at which nothing was served has
the reason there too, beside its metrics.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from lab import axes
from lab.errors import BadPolicy
from lab.metrics import Report
from lab.numbers import whole
from lab.running import run
from lab.simulation.capacity import capacity
from lab.simulation.processes import Outcome, outcomes
from lab.simulation.progress import Line
from lab.summary import aligned
from lab.workload import Workload

FINDS = ("report", "capacity")
_NOT_METRICS = ("refused", "slo", "axes")


def sweep(
    work: Workload,
    model: Any,
    grid: Mapping[str, Sequence[Any]],
    *,
    find: str = "report",
    processes: int | None = None,
    progress: bool | None = None,
    **common: Any,
) -> list[dict[str, Any]]:
    """One row per combination of the values in `grid`; `common` are further options, the same for all.

    Names in `grid` are options of `lab.run`, or "work", "model", "rate", "load". `find` "capacity" searches the
    highest rate that meets the SLO at each point, with the options of `lab.capacity`. A model that is measured, not
    priced, is run here, one point after the other. `progress` True shows a bar, False nothing; by default there is
    a line on a terminal. Raises BadPolicy for an empty grid, for options that contradict it, and where no point at all
    could be computed.
    """
    points = product(grid)
    if find not in FINDS:
        raise BadPolicy(f"a sweep that finds {find!r}; there are {', '.join(FINDS)}")
    if processes is not None:
        whole(processes, "a sweep's number of processes of")
    _check_once(grid, common, find)
    if not all(hasattr(point.get("model", model), "price") for point in points):
        processes = 1
    bar = _bar(len(points), progress)
    results: dict[int, Outcome] = {}
    for index, outcome in outcomes(_point, (work, model, find, common), points, processes):
        results[index] = outcome
        bar.update()
    bar.close()
    return _rows(points, results)


def _rows(points: Sequence[dict[str, Any]], results: Mapping[int, Outcome]) -> list[dict[str, Any]]:
    """Labels, metrics and errors in the order of the points."""
    good = [outcome.value for outcome in results.values() if outcome.error is None]
    if not good:
        raise BadPolicy(
            f"none of the {len(points)} points of the sweep could be computed; the first: {results[0].error}"
        )
    nothing = dict.fromkeys(good[0])
    return [
        labels(point) | (results[index].value or nothing | {"error": results[index].error})
        for index, point in enumerate(points)
    ]


def _check_once(grid: Mapping[str, Sequence[Any]], common: Mapping[str, Any], find: str) -> None:
    """Every setting comes from one place, and how fast requests come is said once, or found."""
    twice = [name for name in grid if name in common]
    if twice:
        raise BadPolicy(
            f"a sweep over {twice[0]}, and {twice[0]}={common[twice[0]]!r} for all points: give one of them"
        )
    paces = [name for name in ("rate", "load") if name in (*grid, *common)]
    if len(paces) == 2:
        raise BadPolicy("a sweep with rate and load: both say how fast requests come; give one of them")
    if paces and find == "capacity":
        raise BadPolicy(f"a sweep that finds capacities, with {paces[0]}: the rate is what is searched; leave it out")


def product(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, the last name changing fastest. Raises BadPolicy where there are none."""
    for name, values in grid.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise BadPolicy(f"{name} = {values!r} in a sweep; it must be a list of values")
    lists = {name: list(values) for name, values in grid.items()}
    empty = [name for name, values in lists.items() if not values]
    if empty or not lists:
        raise BadPolicy(f"a sweep over {'no values of ' + ', '.join(empty) if empty else 'nothing'}: give a list each")
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _point(shared: tuple[Workload, Any, str, dict[str, Any]], point: dict[str, Any]) -> dict[str, Any]:
    """The metrics of one combination. Runs in any process."""
    work, model, find, common = shared
    options = dict(common | point)
    work, model = options.pop("work", work), options.pop("model", model)
    rate, load = options.pop("rate", None), options.pop("load", None)
    work = work.at_rate(rate) if rate is not None else work.at_load(load) if load is not None else work
    if find == "capacity":
        best = capacity(work, model, **options)
        found = {name: value for name, value in best.at_rate.items() if name != "rate"}
        return {"capacity_rps": best.rate, **found, "error": None}
    report = run(work, model, **options)
    return record(report) | {"error": None if report.finished else _why(report)}


def _why(report: Report) -> str:
    """The reason why nothing was served, as far as one was given."""
    reasons = [reason for reason in report.refused.values() if reason]
    return f"none of the {report.requests} requests was served" + (f": {reasons[0]}" if reasons else "")


def record(report: Report) -> dict[str, Any]:
    """A report as one flat row: `ttft_s` becomes `ttft_mean_s`, `ttft_p50_s`, …; `refused` a number."""
    row: dict[str, Any] = {}
    for name, value in report.to_dict().items():
        if isinstance(value, dict) and name not in _NOT_METRICS:
            row |= {f"{name.removesuffix('_s')}_{point}_s": number for point, number in value.items()}
        elif name not in _NOT_METRICS:
            row[name] = value
    return row | {"refused": len(report.refused)}


def labels(point: Mapping[str, Any]) -> dict[str, Any]:
    """How the values of a point are called in the table: numbers and text as they are, objects by their names."""
    return {name: _label(name, value) for name, value in point.items()}


def _label(name: str, value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no such numbers
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_cell(limit)}" for key, limit in value.items())
    if name in axes._HOMES:
        return axes.describe(value)
    return getattr(value, "name", None) or str(value)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as text, numbers to four digits; all columns unless told. An error stands in the last one."""
    columns = list(columns or rows[0])
    if any(row.get("error") for row in rows):
        columns = [name for name in columns if name != "error"] + ["error"]
    lines = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)]
    return "\n".join(aligned(lines))


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# -- progress -----------------------------------------------------------------------------------------------
def _bar(total: int, progress: bool | None) -> Any:
    """A bar of tqdm's where one is asked for, else a line on a terminal, else nothing."""
    if progress:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            return tqdm(total=total, unit="point")
    return _LineBar(total, Line(every=0.5) if progress is not False else None)


class _LineBar:
    def __init__(self, total: int, line: Line | None):
        self.total, self.line, self.done = total, line, 0

    def update(self) -> None:
        self.done += 1
        if self.line and self.line.due():
            self.line.show(f"{self.done} of {self.total} points")

    def close(self) -> None:
        if self.line:
            self.line.clear()
