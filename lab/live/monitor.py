"""Utilisation, sampled in the background. Every series says where its numbers come from.

psutil    CPU time of this kernel and of the whole computer, memory of this kernel
NVML      what the GPU's counters say (see `nvml`)
the runs  FLOP/s and byte/s that the steps achieved, and their share of the peak (MFU, MBU): steps say what they
          computed and moved, `Monitor.work` adds it up; for a simulated machine both sides are the model's

What is missing is a sentence in `notes`, never an exception.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from lab.errors import EngineStopped
from lab.live.nvml import Gpus
from lab.live.readings import Reading
from lab.peaks import Peaks, this_machine

__all__ = ["Monitor", "Reading", "Recorder"]


class Monitor:
    """`sample()` returns readings since the last call, from one thread; any thread may report `work`.

    `peaks` (by default what was measured on this computer) turns work into MFU and MBU. With `modelled` the work is a
    simulated machine's, and readings say so.
    """

    def __init__(self, gpu: bool = True, peaks: Peaks | None = None, modelled: bool = False):
        self.notes: list[str] = []
        self.peaks = peaks if peaks is not None or modelled else this_machine()
        self.modelled = modelled
        self._lock = threading.Lock()
        self._work = [0.0, 0.0, 0.0]  # FLOP, bytes, seconds since the last sample
        self._process: Any = None
        self._cores = 1
        self._open_cpu()
        self._gpus = Gpus() if gpu else None
        if self._gpus is not None and self._gpus.note:
            self.notes.append(self._gpus.note)
        if self.peaks is None and not modelled:
            self.notes.append("MFU and MBU are not shown: `python3 -m lab doctor` measures this computer's peaks.")

    def _open_cpu(self) -> None:
        try:
            import psutil
        except ImportError:
            self.notes.append("CPU utilisation needs the package psutil, which is not installed.")
            return
        self._psutil, self._process = psutil, psutil.Process()
        with suppress(psutil.Error, AttributeError, OSError):  # macOS has no affinity
            self._cores = len(self._process.cpu_affinity())
        self._cores = self._cores if self._cores > 1 else psutil.cpu_count() or 1
        self.prime()

    @property
    def cores(self) -> int:
        """CPU cores this process may use."""
        return self._cores

    def prime(self) -> None:
        """Begin the interval of the next sample. psutil counts per thread: call it in the one that samples."""
        if self._process is not None:
            with suppress(self._psutil.Error, OSError):
                self._process.cpu_percent()
                self._psutil.cpu_percent()

    def work(self, flops: float, bytes: float, seconds: float) -> None:
        """Steps that took `seconds` in all computed `flops` and moved `bytes`; 0 of both means unknown."""
        if seconds > 0 and (flops or bytes):
            with self._lock:
                for place, value in enumerate((flops, bytes, seconds)):
                    self._work[place] += value

    def sample(self) -> list[Reading]:
        """Readings over the time since the last call."""
        found = [*self._cpu(), *self._achieved(), *(self._gpus.sample() if self._gpus else [])]
        if self._gpus is not None and self._gpus.note and self._gpus.note not in self.notes:
            self.notes.append(self._gpus.note)
        return found

    def close(self) -> None:
        """Give NVML back."""
        if self._gpus is not None:
            self._gpus.close()

    def _cpu(self) -> list[Reading]:
        if self._process is None:
            return []
        cores = f"{self._cores} core{'s' if self._cores > 1 else ''}"
        found = []
        with suppress(self._psutil.Error, OSError):
            mine = min(100.0, self._process.cpu_percent() / self._cores)
            found.append(Reading("process", mine, "%", f"this kernel's share of {cores} (psutil)"))
            found.append(Reading("machine", self._psutil.cpu_percent(), "%", "the whole computer's CPU (psutil)"))
            resident = self._process.memory_info().rss / 1e9
            found.append(Reading("memory", resident, "GB", "this kernel's memory (psutil)"))
        return found

    def _achieved(self) -> list[Reading]:
        with self._lock:
            (flops, moved, seconds), self._work = self._work, [0.0, 0.0, 0.0]
        if not seconds:
            return []
        how = "modelled" if self.modelled else "counted from the steps"
        rates = (
            ("flops", flops / seconds, "GFLOP/s", "arithmetic", "mfu", "MFU", self.peaks and self.peaks.flops),
            ("bytes", moved / seconds, "GB/s", "memory traffic", "mbu", "MBU", self.peaks and self.peaks.bytes_per_s),
        )
        found = []
        for name, rate, unit, what, share, short, peak in rates:
            if rate:
                found.append(Reading(name, rate / 1e9, unit, f"{what} while a step runs, {how}"))
                if peak:
                    text = f"{short}: of {peak / 1e9:,.0f} {unit}, {self.peaks.source}; {how}"
                    found.append(Reading(share, 100 * rate / peak, "%", text))
        return found


class Recorder(threading.Thread):
    """Samples a monitor every `interval` seconds while the body of `with Recorder() as log:` runs.

    `points` are (seconds since the beginning, readings); `series()` has them by name. Use it for a run that has no
    live session: `lab.run` inside, then `figures.utilisation(log)`.
    """

    def __init__(self, monitor: Monitor | None = None, interval: float = 0.2):
        super().__init__(name="lab-monitor", daemon=True)
        self.monitor, self.interval = monitor or Monitor(), interval
        self.points: list[tuple[float, list[Reading]]] = []
        self._halt = threading.Event()

    @property
    def notes(self) -> list[str]:
        """What could not be read, in sentences."""
        return self.monitor.notes

    def __enter__(self) -> Recorder:
        if self.ident is not None:
            raise EngineStopped("this recorder has recorded already: make a new Recorder() for each `with`")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self.join()
        self.monitor.close()

    def run(self) -> None:
        """Sample until the body has ended, then once more."""
        began = time.perf_counter()
        self.monitor.prime()
        while True:
            last = self._halt.wait(self.interval)
            self.points.append((time.perf_counter() - began, self.monitor.sample()))
            if last:
                return

    def series(self) -> dict[str, tuple[Reading, list[float], list[float]]]:
        """By name: a reading (for unit and source), the times, the values."""
        found: dict[str, tuple[Reading, list[float], list[float]]] = {}
        for moment, readings in self.points:
            for reading in readings:
                _, times, values = found.setdefault(reading.name, (reading, [], []))
                times.append(moment)
                values.append(reading.value)
        return found
