"""Utilisation: every series has a source, what is missing is a sentence, work becomes MFU and MBU."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

import lab.live.monitor
from lab.errors import EngineStopped
from lab.live.monitor import Monitor, Recorder
from lab.peaks import Peaks


class FakeNvml:
    """Two GPUs as nvidia-ml-py shows them; the second has no GPM metrics and fails when asked for its power."""

    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL, NVML_GPM_METRICS_GET_VERSION = 2, 10, 1

    def __init__(self, count: int = 2):
        self.count, self.samples, self.freed, self.open = count, 0, 0, 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=50 + handle, memory=20)

    def nvmlDeviceGetPowerUsage(self, handle):
        if handle == 1:
            raise RuntimeError("Not Supported")
        return 350_500

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=30e9, total=141e9)

    def nvmlGpmQueryDeviceSupport(self, handle):
        return SimpleNamespace(isSupportedDevice=int(handle == 0))

    def nvmlGpmSampleAlloc(self):
        return SimpleNamespace(number=None)

    def nvmlGpmSampleFree(self, sample):
        self.freed += 1

    def nvmlGpmSampleGet(self, handle, sample):
        self.samples += 1
        sample.number = self.samples

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(3)])

    def nvmlGpmMetricsGet(self, question):
        assert question.version == 1 and question.numMetrics == 2
        assert question.sample1.number + 1 == question.sample2.number, "an older sample, then the next one"
        for metric in question.metrics[:2]:
            metric.value = {2: 61.5, 10: 33.0}[metric.metricId]


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def by_name(readings):
    return {reading.name: reading for reading in readings}


def test_a_machine_without_nvml_gets_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monitor = Monitor()
    assert any("nvidia-ml-py" in note for note in monitor.notes)
    readings = by_name(monitor.sample())
    assert 0 <= readings["process"].value <= 100 and "psutil" in readings["process"].source
    assert readings["memory"].unit == "GB" and readings["memory"].value > 0
    monitor.close()


def test_an_nvml_that_fails_gets_a_sentence_too(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("driver gone")

    monkeypatch.setitem(sys.modules, "pynvml", Broken())
    monitor = Monitor()
    assert any("driver gone" in note for note in monitor.notes) and monitor.sample()
    monitor.close()


def test_no_gpu_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(count=0))
    assert any("no GPU" in note for note in Monitor().notes)


def test_a_gpu_that_answers_nothing_gets_a_sentence(monkeypatch):
    class Mute(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, handle):
            raise RuntimeError("Unknown Error")

        nvmlDeviceGetPowerUsage = nvmlDeviceGetMemoryInfo = nvmlGpmQueryDeviceSupport = nvmlDeviceGetUtilizationRates

    monkeypatch.setitem(sys.modules, "pynvml", Mute())
    monitor = Monitor()
    for _ in range(2):
        assert not [r for r in monitor.sample() if r.name.startswith("gpu")]
    (note,) = [note for note in monitor.notes if "GPU" in note]
    assert "GPU 0, 1" in note and "Unknown Error" in note
    monitor.close()


def test_gpu_counters_with_units_and_sources(nvml):
    monitor = Monitor()
    readings = by_name(monitor.sample())
    found = {name: (r.value, r.unit) for name, r in readings.items() if name.startswith("gpu")}
    assert found == {
        "gpu0": (50.0, "%"),
        "gpu0_memory": (20.0, "%"),
        "gpu0_sm": (61.5, "%"),
        "gpu0_bandwidth": (33.0, "%"),
        "gpu0_power": (350.5, "W"),
        "gpu0_used": (30.0, "GB"),
        "gpu1": (51.0, "%"),  # its power fails, its SMs are not told; the rest stays
        "gpu1_memory": (20.0, "%"),
        "gpu1_used": (30.0, "GB"),
    }
    assert all("NVML" in r.source for name, r in readings.items() if name.startswith("gpu"))
    assert "141 GB" in readings["gpu0_used"].source
    monitor.sample()
    monitor.close()
    monitor.close()
    assert nvml.freed == 2 and nvml.open == 0 and not [r for r in monitor.sample() if r.name.startswith("gpu")]


def test_without_psutil_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    monitor = Monitor(gpu=False)
    assert any("psutil" in note for note in monitor.notes) and monitor.sample() == []


def test_work_becomes_mfu_and_mbu():
    monitor = Monitor(gpu=False, peaks=Peaks(100e9, 20e9, "measured somewhere"))
    monitor.work(30e9, 5e9, 0.5)
    monitor.work(10e9, 5e9, 0.5)  # 40 GFLOP and 10 GB in a second of steps
    readings = by_name(monitor.sample())
    values = {name: (readings[name].value, readings[name].unit) for name in ("flops", "bytes", "mfu", "mbu")}
    assert values == {"flops": (40.0, "GFLOP/s"), "bytes": (10.0, "GB/s"), "mfu": (40.0, "%"), "mbu": (50.0, "%")}
    assert "measured somewhere" in readings["mfu"].source and "counted from the steps" in readings["mfu"].source
    assert not {"flops", "mfu"} & set(by_name(monitor.sample())), "no step, no rate"


def test_by_default_the_peaks_are_those_measured_here(monkeypatch):
    monkeypatch.setattr(lab.live.monitor, "this_machine", lambda: Peaks(1e9, 1e9, "measured here"))
    monitor = Monitor(gpu=False)
    monitor.work(0.5e9, 0.0, 1.0)
    assert by_name(monitor.sample())["mfu"].value == 50.0
    assert Monitor(gpu=False, modelled=True).peaks is None, "a simulated machine's peaks are not this computer's"


def test_modelled_work_says_so():
    monitor = Monitor(gpu=False, peaks=Peaks(989e12, 3.35e12, "H100 SXM, data sheet"), modelled=True)
    monitor.work(98.9e12, 0.0, 1.0)
    readings = by_name(monitor.sample())
    assert readings["mfu"].value == pytest.approx(10.0) and "modelled" in readings["mfu"].source
    assert "mbu" not in readings, "bytes are unknown"


def test_without_peaks_rates_stay_and_a_sentence_says_why(monkeypatch):
    monkeypatch.setattr(lab.live.monitor, "this_machine", lambda: None)
    monitor = Monitor(gpu=False)
    monitor.work(1e9, 1e9, 1.0)
    assert {"flops", "bytes"} <= set(by_name(monitor.sample())) and any("doctor" in note for note in monitor.notes)
    assert "mfu" not in by_name(monitor.sample())


@pytest.mark.parametrize("work", [(0.0, 0.0, 1.0), (1.0, 1.0, 0.0)])
def test_unknown_work_is_not_shown_as_none(work):
    monitor = Monitor(gpu=False)
    monitor.work(*work)
    assert "flops" not in by_name(monitor.sample())


def test_work_from_many_threads_adds_up():
    monitor = Monitor(gpu=False)
    threads = [threading.Thread(target=lambda: [monitor.work(1e9, 0, 0.001) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor._work[0] == pytest.approx(800e9) and monitor._work[2] == pytest.approx(0.8)


def test_a_recorder_samples_while_its_body_runs(nvml):
    with Recorder(interval=0.005) as log:
        log.monitor.work(1e9, 1e9, 0.1)
    series = log.series()
    assert series["process"][0].unit == "%" and len(series["process"][1]) == len(log.points) >= 1
    assert series["flops"][2] == [10.0] and not log.is_alive()
    assert nvml.open == 0


def test_a_recorder_records_once():
    recorder = Recorder(Monitor(gpu=False), interval=0.005)
    with recorder:
        pass
    points = len(recorder.points)
    with pytest.raises(EngineStopped, match="make a new Recorder"), recorder:
        pass
    assert len(recorder.points) == points


def test_a_recorder_ends_when_its_body_fails():
    with pytest.raises(RuntimeError), Recorder(Monitor(gpu=False)) as log:
        raise RuntimeError
    assert not log.is_alive() and log.points


def test_a_recorder_begins_its_first_interval_in_its_own_thread(monkeypatch):
    monitor = Monitor(gpu=False)
    asked = []  # psutil counts CPU time since the last call of the same thread
    monkeypatch.setattr(monitor._psutil, "cpu_percent", lambda: asked.append(threading.current_thread()) or 1.0)
    with Recorder(monitor, interval=0.005) as log:
        pass
    assert len(asked) == 1 + len(log.points) and set(asked) == {log}
