"""Utilisation of this machine, sampled in the background. Every series says where its numbers come from.

psutil gives CPU time, NVML the GPU's counters. What is missing is a sentence in `notes`, never an exception.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """One series' value now, in percent or in `unit`."""

    name: str
    value: float
    unit: str
    source: str


class Monitor:
    """`sample()` returns readings since the last call. One thread at a time."""

    def __init__(self, gpu: bool = True):
        self.notes: list[str] = []
        self._process: Any = None
        self._cores = 1
        self._handles: list[Any] = []
        self._nvml: Any = None
        self._open_cpu()
        if gpu:
            self._open_gpu()

    def _open_cpu(self) -> None:
        try:
            import psutil
        except ImportError:
            self.notes.append("CPU utilisation needs the package psutil, which is not installed.")
            return
        self._psutil, self._process = psutil, psutil.Process()
        self._cores = len(self._process.cpu_affinity()) if hasattr(self._process, "cpu_affinity") else 0
        self._cores = self._cores or psutil.cpu_count() or 1
        self._process.cpu_percent()
        psutil.cpu_percent()

    def _open_gpu(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._nvml = pynvml
        except ImportError:
            self.notes.append("GPU utilisation is not shown: the package nvidia-ml-py (NVML) is not installed.")
        except Exception as error:  # whatever NVML says, it must not stop a session
            self.notes.append(f"GPU utilisation is not shown: NVML says {error}.")

    @property
    def cores(self) -> int:
        """CPU cores this process may use."""
        return self._cores

    def sample(self) -> list[Reading]:
        """Readings over the time since the last call."""
        return [*self._cpu(), *self._gpu()]

    def _cpu(self) -> list[Reading]:
        if self._process is None:
            return []
        cores = f"{self._cores} core{'s' if self._cores > 1 else ''}"
        mine = min(100.0, self._process.cpu_percent() / self._cores)
        return [
            Reading("process", mine, "%", f"this kernel's share of {cores} (psutil)"),
            Reading("machine", self._psutil.cpu_percent(), "%", "the whole computer's CPU (psutil)"),
        ]

    def _gpu(self) -> list[Reading]:
        found = []
        for index, handle in enumerate(self._handles):
            label = f"GPU {index} (NVML)" if len(self._handles) > 1 else "GPU (NVML)"
            with suppress(Exception):
                rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
                found.append(Reading(f"gpu{index}", float(rates.gpu), "%", f"time with a kernel running, {label}"))
                found.append(Reading(f"gpu{index}_memory", float(rates.memory), "%", f"memory reads/writes, {label}"))
            with suppress(Exception):
                watts = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
                found.append(Reading(f"gpu{index}_power", watts, "W", f"power, {label}"))
        return found

    def close(self) -> None:
        """Give NVML back."""
        if self._nvml is not None:
            with suppress(Exception):
                self._nvml.nvmlShutdown()
            self._nvml, self._handles = None, []
