"""`lab.calibrate()`: measure this machine for under a minute, so that it can be simulated like any other device.

    found = lab.calibrate()                                   # or python3 -m lab calibrate
    lab.run(work, lab.simulated("smollm2-135m", on="this-machine"), ...)

The real engine computes steps of many shapes (measuring.py), the price list is fitted to their times (machine_fit.py)
and kept, with the machine's name, date and versions, where `on="this-machine"` finds it. What else runs on the computer
meanwhile is measured along: the spread over the rounds says so, and a calibration that is not to be trusted is marked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from lab import peaks
from lab.errors import BadPolicy
from lab.numbers import real
from lab.simulation import machine_fit
from lab.simulation.hardware import THIS_MACHINE, Device, Link, save_this_machine
from lab.simulation.measuring import Point, measure, more_rounds
from lab.simulation.shapes import ModelShape

NOISY_SPREAD = 0.15  # median over the steps of (interquartile range / median); above it the rounds disagree
BUSY = 0.25  # share of all cores that others use before anything is measured


@dataclass(slots=True)
class Calibration:
    """A device fitted to this machine, and how well: `errors` are relative, by kind of step and over all."""

    device: Device
    shape: ModelShape
    points: list[Point]
    errors: dict[str, dict[str, float]]
    seconds: float
    busy_before: float | None  # share of all cores; None where the system does not say
    path: Path | None = None  # where it was kept

    @property
    def spread(self) -> float:
        """Median over all steps of their spread over the rounds."""
        return median(point.spread for point in self.points)

    @property
    def doubt(self) -> str | None:
        """Why not to trust it; None where nothing speaks against it."""
        if self.spread > NOISY_SPREAD:
            return f"the same step varied by {100 * self.spread:.0f} % between rounds: other programs use this computer"
        if self.busy_before is not None and self.busy_before > BUSY:
            return f"other programs kept {100 * self.busy_before:.0f} % of all cores busy before the measurement"
        return None

    def summary(self) -> str:
        """Every step with its time, its spread and what the fit says, then the errors."""
        lines = [
            f"{'requests × new tokens after cached ones':44}{'measured':>12}{'spread':>8}{'fitted':>12}{'error':>8}"
        ]
        for point, fitted in zip(self.points, self._fitted(), strict=True):
            lines.append(
                f"{_short(point.name):44}{1e3 * point.time:9.1f} ms{100 * point.spread:6.0f} %"
                f"{1e3 * fitted:9.1f} ms{round(100 * (fitted / point.time - 1)) or 0:+6d} %"
            )
        every = self.errors["all"]
        lines.append(
            f"{self.device.title}: {every['steps']} steps × {len(self.points[0].seconds)} rounds of {self.shape.name} "
            f"in {self.seconds:.0f} s; error of the fit: median {100 * every['median']:.1f} %, "
            f"largest {100 * every['max']:.0f} %; median spread {100 * self.spread:.0f} %"
        )
        if self.path:
            lines.append(f"kept in {self.path}: simulate with --on {THIS_MACHINE}")
        if self.doubt:
            lines.append(f"not to be trusted: {self.doubt}; calibrate again at a quieter moment")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "device": self.device.to_dict(),
            "model": self.shape.name,
            "errors": self.errors,
            "median_spread": self.spread,
            "busy_before": self.busy_before,
            "doubt": self.doubt,
            "seconds": self.seconds,
            "steps": [
                {"step": point.name, "tokens": point.tokens, "seconds": point.seconds, "fitted": fitted}
                for point, fitted in zip(self.points, self._fitted(), strict=True)
            ],
        }

    def _fitted(self) -> list[float]:
        return machine_fit.prices(self.points, self.shape, self.device)


def _short(name: str, width: int = 42) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def calibrate(
    model: Any = None, *, seconds: float = 40.0, save: bool = True, say: Callable[[str], None] | None = None
) -> Calibration:
    """Measure about `seconds` (half as long again where the rounds disagree), fit, and keep the result.

    `model` is a real one, the default model unless given. `save` False changes nothing on disk. `say` is told how
    far it is. Raises BadPolicy for a time that is none and for a model that is not in float32 on the CPU, OSError where
    the result can be written nowhere.
    """
    _check_seconds(seconds)
    if model is None:
        from lab.execution.model import load_model

        model = load_model()
    if not all(hasattr(model, name) for name in ("runner", "config", "device", "dtype")):
        raise BadPolicy(f"a calibration of {model!r}: give a model that can be run, as `lab.load_model()` returns it")
    if model.device.type != "cpu" or model.dtype.itemsize != 4:
        raise BadPolicy(f"{model.name} is on {model.device} in {model.dtype}: this machine is its CPU, in float32")
    busy, began = _busy(), time.perf_counter()
    best = peaks.this_machine() or peaks.measure_peaks()
    points = measure(model, seconds, say)
    if median(point.spread for point in points) > NOISY_SPREAD:
        if say:
            say("the rounds disagree: a few more")
        more_rounds(model, points, seconds / 2, say)
    shape = shape_of(model)
    found = machine_fit.samples(points)
    device = machine_fit.fit_device(found, shape, _machine(best, model.name))
    errors = machine_fit.errors(found, shape, device)
    result = Calibration(device, shape, points, errors, time.perf_counter() - began, busy)
    result.device = replace(device, notes=_notes(result))
    result.path = save_this_machine(result.device) if save else None
    return result


def _check_seconds(seconds: float) -> None:
    if real(seconds, "a calibration (s) of") == 0:
        raise BadPolicy("a calibration of 0 s; it must be above 0")


def shape_of(model: Any) -> ModelShape:
    """The shape of a real model, from its configuration."""
    config = model.config
    return ModelShape(
        name=model.name,
        layers=config.num_layers,
        hidden=config.hidden_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        max_context=config.max_length,
        tied=config.tied,
        biases="qkv" if config.qkv_bias else "none",
        qk_norm=config.head_norms,
        source="its own configuration",
    )


def _machine(best: peaks.Peaks, model: str) -> Device:
    """This computer before anything is fitted: its peaks and its memory."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "numba", "numpy") if _installed(name)]
    today = datetime.now(UTC).date().isoformat()
    plain = Device(
        name=THIS_MACHINE,
        title=peaks.machine(),
        peak_flops=best.flops,
        bandwidth=best.bytes_per_s,
        memory=float(_memory()),
        dtypes=("fp32",),
        host_link=Link("memory", best.bytes_per_s / 2, source="a copy reads and writes"),
        sources=(f"peaks: {best.source}", f"steps: measured on {today} with {model}, {', '.join(versions)}"),
    )
    return replace(plain, fit=replace(plain.fit, source=f"fitted to steps of {model} measured on {today}"))


def _notes(result: Calibration) -> str:
    every = result.errors["all"]
    notes = f"fit over {every['steps']} steps: median error {100 * every['median']:.1f} %, spread "
    notes += f"{100 * result.spread:.0f} %"
    return f"{notes}; not to be trusted: {result.doubt}" if result.doubt else notes


def _installed(name: str) -> bool:
    with suppress(metadata.PackageNotFoundError):
        return bool(metadata.version(name))
    return False


def _memory() -> int:
    """Bytes of this computer's memory; 8 GB where the system does not say."""
    with suppress(ImportError):
        import psutil

        return psutil.virtual_memory().total
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 8 << 30


def _busy() -> float | None:
    """Share of all cores in use for half a second, in which this process only waits."""
    with suppress(ImportError):
        import psutil

        return psutil.cpu_percent(0.5) / 100
    return None


def main(argv: list[str]) -> int:
    """`python3 -m lab calibrate`: 0 where the result can be trusted, 1 where it is doubtful (and kept all the same)."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python3 -m lab calibrate",
        description="Measure this machine for under a minute, so that it can be simulated.",
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="a model's name, tiny, or a checkpoint folder")
    parser.add_argument("--seconds", type=float, default=40.0, metavar="S", help="how long to measure (default 40)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times and the fit there")
    options = parser.parse_args(argv)
    from lab.cli import _check_writable
    from lab.execution.model import load_model

    _check_writable(options.json)
    _check_seconds(options.seconds)
    model = load_model(options.model)
    result = calibrate(model, seconds=options.seconds, say=lambda text: print(text, file=sys.stderr))
    print(result.summary())
    if options.json:
        options.json.write_text(json.dumps(result.to_dict(), indent=1) + "\n", encoding="utf-8")
    return 1 if result.doubt else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
