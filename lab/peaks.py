"""What this computer can do at best, measured on it: the denominators of MFU and MBU, and the roof of a roofline.

Measured once (`python3 -m lab doctor`, the set-up, or `measure_peaks()`), kept in a small file, read by everybody.
Importing this module needs the standard library only; measuring needs torch.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from lab.errors import BadPolicy, LabError
from lab.numbers import real
from lab.setup.machine import processor, usable_cores
from lab.setup.paths import ROOT, data_dir

_kept: dict[str, Measurement] = {}  # of this process, for computers on which nothing can be written


@dataclass(frozen=True, slots=True)
class Peaks:
    """Most floating-point operations and most bytes of memory traffic per second (FLOP/s, byte/s).

    `source` is a sentence that says whose numbers these are. Raises BadPolicy unless both rates are above 0.
    """

    flops: float
    bytes_per_s: float
    source: str

    def __post_init__(self) -> None:
        for name in ("flops", "bytes_per_s"):
            if real(getattr(self, name), f"{name} of a peak is") == 0:
                raise BadPolicy(f"{name} of a peak is 0; it must be above 0")

    @classmethod
    def of(cls, meta: dict[str, Any]) -> Peaks | None:
        """Those that a run was judged by, from its trace's `meta`; None where it knew none."""
        if not (meta.get("peak_flops") and meta.get("peak_bytes_per_s")):
            return None
        return cls(meta["peak_flops"], meta["peak_bytes_per_s"], meta.get("peak_source", "as the run says"))

    def as_meta(self) -> dict[str, Any]:
        """What `of` reads back."""
        return {"peak_flops": self.flops, "peak_bytes_per_s": self.bytes_per_s, "peak_source": self.source}

    @property
    def ridge(self) -> float:
        """FLOP per byte from which on arithmetic, not memory, is the limit."""
        return self.flops / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Measurement:
    """Peaks as they are stored, with what they were measured on, when and how."""

    flops: float
    bytes_per_s: float
    name: str
    threads: int
    date: str
    torch: str
    how: str = ""

    def peaks(self) -> Peaks:
        """The two rates, and whose they are."""
        threads = f" with {self.threads} thread{'s' if self.threads != 1 else ''}" if self.threads else ""
        source = f"measured on this computer ({self.name}){threads} on {self.date}, torch {self.torch}"
        return Peaks(self.flops, self.bytes_per_s, source)


def this_machine(device: str = "cpu") -> Peaks | None:
    """What was measured last on this computer; None before anything was, or where the file cannot be read."""
    found = _measurement(_key(device))
    return found.peaks() if found else None


def _measurement(key: str) -> Measurement | None:
    """What is kept under `key`, in this process or on disk."""
    if key not in _kept:
        with suppress(TypeError, LabError):  # a file from another version, or edited by hand
            stored = Measurement(**_stored()[key]) if key in _stored() else None
            if stored is not None and stored.peaks():
                _kept[key] = stored
    return _kept.get(key)


def measure_peaks(device: str = "cpu", seconds: float = 1.0) -> Peaks:
    """Measure for about three times `seconds`, keep the result, and return it. Imports torch.

    What else runs on the computer meanwhile makes the result smaller: measure while nothing else does.
    """
    from lab.setup import measure

    flops, bandwidth = measure.peak_flops(device, seconds), measure.memory_bandwidth(device, seconds)
    return keep(flops.rate, bandwidth.rate, device, f"{flops.how}; {bandwidth.how}")


def keep(flops: float, bytes_per_s: float, device: str = "cpu", how: str = "") -> Peaks:
    """Keep measured rates (FLOP/s, byte/s) for `this_machine`, on disk too where that can be written.

    A peak is the best that was ever reached: where the same computer, with as many threads and the same torch, has done
    better before, that stays. Delete the file to forget it.
    """
    import torch

    cpu = device == "cpu"
    name, threads = (machine(), torch.get_num_threads()) if cpu else (torch.cuda.get_device_name(), 0)
    today = datetime.now(UTC).date().isoformat()
    measured = Measurement(flops, bytes_per_s, name, threads, today, metadata.version("torch"), how)
    before = _measurement(_key(device))
    if before and (before.name, before.threads, before.torch) == (name, threads, measured.torch):
        improved = flops > before.flops or bytes_per_s > before.bytes_per_s
        best = {"flops": max(flops, before.flops), "bytes_per_s": max(bytes_per_s, before.bytes_per_s)}
        measured = replace(measured, **best) if improved else before
    peaks = measured.peaks()
    _kept[_key(device)] = measured
    for path in files():
        with suppress(OSError):
            _write(path, _read(path) | {_key(device): asdict(measured)})
            break
    return peaks


def machine() -> str:
    """This computer's processor and how many cores this process may use."""
    cores = usable_cores()
    return f"{processor()}, {cores} core{'s' if cores > 1 else ''}"


def files() -> tuple[Path, ...]:
    """Where measurements may lie: beside the models, and, where that folder is shared and read-only, in the clone."""
    return tuple(dict.fromkeys((data_dir() / "peaks.json", ROOT / "data" / "peaks.json")))


def _key(device: str) -> str:
    """A shared folder serves many computers; each reads its own numbers."""
    return f"{device} of {machine()}"


def _stored() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in reversed(files()):
        found |= _read(path)
    return found


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        read = json.loads(path.read_text(encoding="utf-8"))
        return read if isinstance(read, dict) else {}
    return {}


def _write(path: Path, record: dict[str, Any]) -> None:
    """Replaced in one move, so that nobody reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)
