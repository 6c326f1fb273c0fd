"""Devices that can be priced: what each can do at best, and the share of it that was measured or is assumed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lab.errors import BadPolicy, UnknownName
from lab.numbers import real
from lab.setup.paths import ROOT, data_dir

TABLE = ROOT / "data" / "hardware.json"
THIS_MACHINE = "this-machine"
NUMBER_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Fit:
    """How near a device comes to its peaks; `source` says how each set of numbers came about.

    A layer's projections take ((bytes/(bandwidth·mbu))^p + (flops/(peak·mfu))^p)^(1/p) + overhead seconds, for p = 2 a
    soft knee and for large p the hard maximum of the roofline (Williams et al. 2009). Attention has shares of its own.
    `step_overhead`, `row_overhead` (seconds per step and per row) are what the host spends. `correction` holds (tokens,
    factor) pairs by which a layer's projections are multiplied, interpolated in between and constant outside: for
    machines whose matrix product is far from a roofline at some sizes. Empty: none. `rectangle` is for machines whose
    padded attention is another kernel: (share of the peak, share of the bandwidth, seconds per layer), which add up.
    """

    mfu: float = 0.70
    mbu: float = 0.75
    overhead: float = 10e-6
    p: float = 2.0
    attention_mfu: float = 0.45
    attention_mbu: float = 0.70
    step_overhead: float = 0.5e-3
    row_overhead: float = 0.0
    correction: tuple[tuple[float, float], ...] = ()
    rectangle: tuple[float, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "correction", tuple((float(at), float(factor)) for at, factor in self.correction))
        rectangle = tuple(real(number, "a fit's rectangle with") for number in self.rectangle)
        object.__setattr__(self, "rectangle", rectangle)
        shares = {name: getattr(self, name) for name in ("mfu", "mbu", "attention_mfu", "attention_mbu")}
        if self.rectangle:
            if len(self.rectangle) != 3:
                raise BadPolicy(f"a fit's rectangle has {len(self.rectangle)} numbers; two shares and seconds are 3")
            shares |= {"a rectangle's mfu": self.rectangle[0], "a rectangle's mbu": self.rectangle[1]}
        for share, value in shares.items():
            if real(value, f"a fit with {share} of") == 0:
                raise BadPolicy(f"a fit with {share} of 0; it must be above 0")
        real(self.p, "a fit with p of", 1.0)
        for seconds in ("overhead", "step_overhead", "row_overhead"):
            real(getattr(self, seconds), f"a fit with {seconds} (s) of")
        if any(a >= b for (a, _), (b, _) in zip(self.correction, self.correction[1:], strict=False)):
            raise BadPolicy("a fit's correction must list its token counts in rising order")


@dataclass(frozen=True, slots=True)
class Link:
    """A way between devices, or to the host's memory: bytes/s per direction and seconds before the first byte.

    An all-reduce of n bytes over k devices takes latency + n·2(k−1)/k / bandwidth, as a ring does at best.
    """

    kind: str
    bandwidth: float
    latency: float = 10e-6
    most: int | None = None  # devices it can join; None: a whole node
    source: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or a whole computer.

    `peak_flops` and `bandwidth` are dense FLOP/s (of the numbers in `dtypes`) and byte/s; `memory` is bytes. `links`
    join it to its like, the best first, `host_link` to the host's memory. Raises BadPolicy for numbers that make no
    device.
    """

    name: str
    title: str
    peak_flops: float
    bandwidth: float
    memory: float
    dtypes: tuple[str, ...] = ("bf16", "fp16")
    links: tuple[Link, ...] = ()
    host_link: Link = Link("PCIe 4 x16", 25e9)
    fit: Fit = field(default_factory=Fit)
    sources: tuple[str, ...] = ()
    notes: str = ""

    def __post_init__(self) -> None:
        for what in ("peak_flops", "bandwidth", "memory"):
            if real(getattr(self, what), f"device {self.name!r} has a {what} of") == 0:
                raise BadPolicy(f"device {self.name!r} has a {what} of 0; it must be above 0")
        unknown = [dtype for dtype in self.dtypes if dtype not in NUMBER_BYTES]
        if unknown or not self.dtypes:
            raise BadPolicy(
                f"device {self.name!r} computes {unknown or 'nothing'}; there are {', '.join(NUMBER_BYTES)}"
            )

    def link(self, devices: int) -> Link:
        """The best link that joins `devices` of these. Raises BadPolicy where there is none."""
        for link in self.links:
            if link.most is None or devices <= link.most:
                return link
        raise BadPolicy(
            f"{devices} × {self.name}: the table has no link that joins so many; use fewer, or a Device of your own"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; `from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Device:
        """A device from its JSON form. Raises BadPolicy for fields that are missing or unknown."""
        row = dict(row)
        try:
            row["links"] = tuple(Link(**link) for link in row.get("links", ()))
            if "host_link" in row:
                row["host_link"] = Link(**row["host_link"])
            row["fit"] = Fit(**row.get("fit", {}))
            for name in ("dtypes", "sources"):
                if name in row:
                    row[name] = tuple(row[name])
            return cls(**row)
        except TypeError as error:
            raise BadPolicy(f"device {row.get('name')!r}: {error}") from error


@cache
def table() -> dict[str, Device]:
    """Every device of `data/hardware.json` by its name."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["devices"]
    return {name: Device.from_dict({"name": name, **row}) for name, row in rows.items()}


def device(name: str | Device) -> Device:
    """The device called `name` (case does not matter), a Device as it is, "this-machine" as calibrated.

    Raises UnknownName with the nearest names, BadPolicy where this machine has not been calibrated.
    """
    if isinstance(name, Device):
        return name
    key = name.strip().lower() if isinstance(name, str) else name
    if key == THIS_MACHINE:
        return this_machine()
    if key not in table():
        raise UnknownName("device", name, [*table(), THIS_MACHINE])
    return table()[key]


def this_machine() -> Device:
    """This computer as its last calibration found it. Raises BadPolicy that says how to calibrate."""
    for path in calibration_files():
        with suppress(OSError, ValueError, BadPolicy, AttributeError):
            return Device.from_dict(json.loads(path.read_text(encoding="utf-8")))
    raise BadPolicy("this machine has not been measured yet: run `python3 -m lab calibrate` (under a minute) first")


def save_this_machine(measured: Device) -> Path:
    """Keep a calibrated device for `device("this-machine")`; returns where. Raises OSError where it cannot."""
    failed: OSError | None = None
    for path in calibration_files():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(f".{os.getpid()}.tmp")
            fresh.write_text(json.dumps(measured.to_dict(), indent=1) + "\n", encoding="utf-8")
            fresh.replace(path)
            return path
        except OSError as error:
            failed = error
    raise failed or OSError("no place to keep the calibration")


def calibration_files() -> tuple[Path, ...]:
    """Where a calibration may lie: LAB_CALIBRATION alone where it is set, else beside the models or in the clone."""
    if given := os.environ.get("LAB_CALIBRATION"):
        return (Path(given),)
    return tuple(dict.fromkeys(folder / "progress" / "this_machine.json" for folder in (data_dir(), ROOT / "data")))
