"""Fits the price list's parameters to measured per-layer profiles, and says how far off it is elsewhere.

    python -m lab.simulation.fit --profiles DIR --json data/results/simulation_accuracy.json [--update-hardware]

Per device, (mfu, mbu, overhead, p) are fitted on Llama-2-7B alone; all other models are held out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from lab.simulation.costs import Costs
from lab.simulation.hardware import Device, Fit
from lab.simulation.shapes import ModelShape

PARAMETERS = ("mfu", "mbu", "overhead", "p")


def relative_errors(predict: Callable[[int], float], measured: Mapping[int, float]) -> list[float]:
    """|predicted / measured − 1| of every point, in the order of `measured`."""
    return [abs(predict(at) / seconds - 1) for at, seconds in measured.items()]


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Mean, 95th percentile and largest, and how many there were."""
    ranked = sorted(errors)
    return {
        "mean": mean(ranked),
        "p95": ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))],
        "max": ranked[-1],
        "points": len(ranked),
    }


def layer_errors(shape: ModelShape, device: Device, measured: Mapping[int, float], tp: int = 1) -> list[float]:
    """Relative errors of one layer's seconds without attention, by tokens."""
    return relative_errors(Costs(shape, device, tp).layer_seconds, measured)


def fit_layers(shape: ModelShape, device: Device, measured: Mapping[int, float]) -> Fit:
    """The shares and constants that make the mean relative error over `measured` least; the rest of the fit stays.

    A pattern search: one parameter at a time up or down, steps halved when nothing helps. Deterministic.
    """
    start = (0.7, 0.75, 2e-5, 2.0)
    low, high = (0.05, 0.05, 0.0, 1.0), (1.0, 1.0, 1e-3, 8.0)

    def as_fit(values: Sequence[float]) -> Fit:
        return replace(device.fit, **dict(zip(PARAMETERS, values, strict=True)))

    def error(values: Sequence[float]) -> float:
        return mean(layer_errors(shape, replace(device, fit=as_fit(values)), measured))

    return as_fit([rounded(value) for value in pattern_search(error, start, (0.1, 0.1, 1e-5, 0.5), low, high)])


def pattern_search(
    error: Callable[[Sequence[float]], float],
    start: Sequence[float],
    steps: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    halvings: int = 12,
) -> tuple[float, ...]:
    """The point inside [low, high] from which no single step of the last, smallest size makes `error` less."""
    best, least, steps = list(start), error(start), list(steps)
    while halvings:
        better = False
        for place in range(len(best)):
            for sign in (1, -1):
                tried = best.copy()
                tried[place] = min(high[place], max(low[place], tried[place] + sign * steps[place]))
                if tried != best and (found := error(tried)) < least:
                    best, least, better = tried, found, True
        if not better:
            steps, halvings = [step / 2 for step in steps], halvings - 1
    return tuple(best)


def fit_all_reduce(measured: Mapping[int, Mapping[int, float]]) -> tuple[float, float, float]:
    """(latency s, bandwidth byte/s, mean relative error) of a ring over the given {workers: {bytes: seconds}}."""

    def error(values: Sequence[float]) -> float:
        latency, bandwidth = values[0], values[1] * 1e9
        errors = []
        for workers, times in measured.items():
            turns = 2 * (workers - 1) / workers
            errors += relative_errors(lambda size, turns=turns: latency + size * turns / bandwidth, times)
        return mean(errors)

    found = [rounded(x) for x in pattern_search(error, (3e-5, 200.0), (1e-5, 50.0), (1e-6, 10.0), (1e-3, 1000.0))]
    return found[0], found[1] * 1e9, error(found)


def rounded(value: float) -> float:
    """Four significant digits: more than the data hold."""
    return float(f"{value:.4g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    from lab.simulation.accuracy import measure, table, update_hardware

    parser = argparse.ArgumentParser(prog="python -m lab.simulation.fit", description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True, help="folder of measured profiles")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--update-hardware", action="store_true", help="write the fits into the device table")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = measure(options.profiles)
    if options.update_hardware:
        update_hardware(results)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
