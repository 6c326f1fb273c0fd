"""Measure what this computer can do at best: multiply matrices, and move memory. Needs torch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Measured:
    """A rate in units per second (FLOP/s or byte/s) and how it was obtained."""

    rate: float
    how: str


def peak_flops(device: str = "cpu", seconds: float = 1.5) -> Measured:
    """The best of several square float32 products, 2 n^3 operations each, over a few sizes: what was ever reached.

    On a CPU in both ways that there are, torch's and ours: a library that does not use a processor's widest vectors
    (as Intel's does not on others' processors) would make the peak too low, and utilisations above 1.
    """
    from lab.execution.linear import Linear, kernel

    on_cpu = device == "cpu"
    best, how = 0.0, ""
    for n in (1024, 2048) if on_cpu else (4096, 8192):
        a, b = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
        out = torch.empty(n, n, device=device)
        ways = {"torch's": lambda a=a, b=b, out=out: torch.mm(a, b, out=out)}
        if on_cpu and kernel():
            layer = Linear(b.T, way="kernel")
            ways["this project's"] = lambda a=a, layer=layer: layer(a)
        for whose, multiply in ways.items():
            rate = 2 * n**3 / _best_seconds(multiply, seconds / len(ways), device)
            if rate > best:
                best, how = rate, f"best float32 product of two {n} x {n} matrices ({whose})"
    return Measured(best, f"{how}, {_threads(device)}")


def memory_bandwidth(device: str = "cpu", seconds: float = 1.5) -> Measured:
    """The best triad a = b + s c over arrays far larger than any cache; counts two reads and one write."""
    megabytes = 128 if device == "cpu" else 1024
    length = megabytes * 2**20 // 4
    a, b, c = (torch.ones(length, device=device) for _ in range(3))
    best = _best_seconds(lambda: torch.add(b, c, alpha=3.0, out=a), seconds, device)
    return Measured(
        3 * 4 * length / best,
        f"best triad a = b + s*c over {megabytes} MiB arrays, 2 reads + 1 write counted, {_threads(device)}",
    )


@dataclass(slots=True)
class Threads:
    """Microseconds of one small product (8 rows of 576 by 3,072), median, alone and beside a busy process."""

    idle: float
    beside: float

    def __str__(self) -> str:
        return (
            f"{self.idle:.0f} µs alone, {self.beside:.0f} µs beside one busy process ({self.beside / self.idle:.1f}x)"
        )


def small_products(seconds: float = 0.7) -> dict[str, Threads]:
    """What other programs do to a decode step, by each way of multiplying that is available here.

    Several weights are used in turn, as the layers of a model are; each measurement takes `seconds`.
    """
    from lab.execution.linear import WAYS, Linear

    x, weights = torch.ones(8, 576), [torch.rand(3072, 576) for _ in range(6)]
    layers = {way: [Linear(weight, way=way) for weight in weights] for way in WAYS}
    available = {way: made for way, made in layers.items() if made[0].way == way}
    idle = {way: _median_product(made, x, seconds) for way, made in available.items()}
    with busy_process():
        beside = {way: _median_product(made, x, seconds) for way, made in available.items()}
    return {way: Threads(idle[way], beside[way]) for way in available}


def _median_product(layers: list[Callable], x: torch.Tensor, seconds: float) -> float:
    """Microseconds."""
    times, deadline = [], time.perf_counter() + seconds
    with torch.inference_mode():
        for layer in layers:
            layer(x)
        while not times or time.perf_counter() < deadline:
            for layer in layers:
                started = time.perf_counter()
                layer(x)
                times.append(time.perf_counter() - started)
    return 1e6 * sorted(times)[len(times) // 2]


@contextmanager
def busy_process() -> Iterator[None]:
    """A Python process that does nothing but compute, ended on leaving."""
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as child:
        try:
            time.sleep(0.2)
            yield
        finally:
            child.kill()


def _best_seconds(work: Callable[[], object], seconds: float, device: str) -> float:
    work()
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return best


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _threads(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name()
    number = torch.get_num_threads()
    return f"{number} thread{'s' if number > 1 else ''}"
