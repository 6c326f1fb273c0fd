"""Counters of NVIDIA GPUs through NVML (package nvidia-ml-py). What is missing is a sentence, never an exception.

Every GPU tells the share of time in which a kernel ran, which says little about how full the GPU was. Those from the
H100 on also tell how busy their SMs and their memory were (NVML's GPM metrics, between two samples).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lab.live.readings import Reading


class Gpus:
    """All GPUs NVML sees. `note` says why there are none, in a sentence; it is empty where there are some."""

    def __init__(self) -> None:
        self.note = ""
        self._failed: Exception | None = None  # what NVML said last
        self._handles: list[Any] = []
        self._gpm: dict[int, list[Any]] = {}  # GPU -> two samples: the last one, and room for the next
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        except ImportError:
            self.note = "GPU utilisation is not shown: the package nvidia-ml-py (NVML) is not installed."
            return
        except Exception as error:  # whatever NVML says, it must not stop a session
            self.note = f"GPU utilisation is not shown: NVML says {error}."
            return
        if not self._handles:
            self.note = "GPU utilisation is not shown: NVML sees no GPU."
        for index in range(len(self._handles)):
            self._open_gpm(index)

    def sample(self) -> list[Reading]:
        """What every GPU can tell; of one that tells nothing `note` speaks."""
        found, silent = [], []
        for index in range(len(self._handles)):
            readings = self._one(index)
            found += readings
            if not readings:
                silent.append(str(index))
        if silent and not self.note:
            self.note = f"GPU {', '.join(silent)} is not shown: NVML answers no question about it ({self._failed})."
        return found

    def close(self) -> None:
        """Give NVML back. May be called twice."""
        for samples in self._gpm.values():
            for sample in samples:
                with suppress(Exception):
                    self._nvml.nvmlGpmSampleFree(sample)
        if self._nvml is not None:
            with suppress(Exception):
                self._nvml.nvmlShutdown()
        self._nvml, self._handles, self._gpm = None, [], {}

    def _one(self, index: int) -> list[Reading]:
        nvml, handle, name = self._nvml, self._handles[index], f"gpu{index}"
        label = f"GPU {index} (NVML)" if len(self._handles) > 1 else "GPU (NVML)"
        found = []
        with self._noted():
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            found.append(Reading(name, float(rates.gpu), "%", f"share of time with a kernel running, {label}"))
            text = f"share of time in which memory was read or written, {label}"
            found.append(Reading(f"{name}_memory", float(rates.memory), "%", text))
        with self._noted():
            found += self._between_samples(index, label)
        with self._noted():
            watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000  # NVML counts milliwatts
            found.append(Reading(f"{name}_power", watts, "W", f"power, {label}"))
        with self._noted():
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            text = f"memory in use by all programs, of {memory.total / 1e9:.0f} GB, {label}"
            found.append(Reading(f"{name}_used", memory.used / 1e9, "GB", text))
        return found

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """A counter that fails is left out; what was said about it is kept."""
        try:
            yield
        except Exception as error:  # whatever NVML says, it must not stop a session
            self._failed = error

    def _open_gpm(self, index: int) -> None:
        nvml, handle = self._nvml, self._handles[index]
        with suppress(Exception):
            if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
                nvml.nvmlGpmSampleGet(handle, samples[0])
                self._gpm[index] = samples

    def _between_samples(self, index: int, label: str) -> list[Reading]:
        """How busy SMs and memory were since the last call; nothing where the GPU does not tell."""
        if index not in self._gpm:
            return []
        nvml, (last, fresh) = self._nvml, self._gpm[index]
        nvml.nvmlGpmSampleGet(self._handles[index], fresh)
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version, question.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        question.sample1, question.sample2 = last, fresh
        question.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        question.metrics[1].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        nvml.nvmlGpmMetricsGet(question)
        self._gpm[index] = [fresh, last]
        texts = (("sm", "share of SMs that were busy"), ("bandwidth", "share of the memory bandwidth in use"))
        return [
            Reading(f"gpu{index}_{name}", float(question.metrics[place].value), "%", f"{text}, {label}")
            for place, (name, text) in enumerate(texts)
            if not question.metrics[place].nvmlReturn
        ]
