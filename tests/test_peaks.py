"""Peaks of this computer: kept, found again, never mixed up with another's, never an exception where there are none."""

from __future__ import annotations

import json

import pytest

from lab import peaks
from lab.errors import BadPolicy
from lab.peaks import Peaks
from lab.setup.measure import Measured


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(peaks, "ROOT", tmp_path / "clone")
    monkeypatch.setattr(peaks, "_kept", {})
    return tmp_path


def test_nothing_measured_is_none(folder):
    assert peaks.this_machine() is None


def test_what_is_kept_is_found_by_the_next_process(folder, monkeypatch):
    peaks.keep(4e10, 2e10, how="by hand")
    monkeypatch.setattr(peaks, "_kept", {})
    found = peaks.this_machine()
    assert (found.flops, found.bytes_per_s, found.ridge) == (4e10, 2e10, 2.0)
    assert "measured on this computer" in found.source and "torch" in found.source and "thread" in found.source
    assert peaks.this_machine("cuda") is None


def test_another_computer_does_not_get_these_numbers(folder, monkeypatch):
    peaks.keep(4e10, 2e10)
    monkeypatch.setattr(peaks, "_kept", {})
    monkeypatch.setattr(peaks, "machine", lambda: "another processor, 64 cores")
    assert peaks.this_machine() is None
    peaks.keep(9e12, 1e12)
    assert len(json.loads((folder / "peaks.json").read_text())) == 2


def test_a_folder_that_cannot_be_written_is_no_error(folder, monkeypatch):
    monkeypatch.setattr(peaks, "_write", lambda path, record: (_ for _ in ()).throw(PermissionError(path)))
    peaks.keep(4e10, 2e10)
    assert peaks.this_machine().flops == 4e10  # for this process


def test_a_read_only_shared_folder_leaves_the_numbers_in_the_clone(folder, monkeypatch):
    write = peaks._write

    def refuse_shared(path, record):
        if path.parent == folder:
            raise PermissionError(path)
        write(path, record)

    monkeypatch.setattr(peaks, "_write", refuse_shared)
    peaks.keep(4e10, 2e10)
    monkeypatch.setattr(peaks, "_kept", {})
    assert peaks.this_machine().flops == 4e10


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"cpu of X": {"flops": 1}}', '{"cpu of X": 3}'])
def test_a_broken_file_counts_as_none(folder, monkeypatch, text):
    (folder / "peaks.json").write_text(text.replace("X", peaks.machine()))
    assert peaks.this_machine() is None
    peaks.keep(1.0, 1.0)
    assert peaks.this_machine() is not None


def test_measuring_keeps_both_rates(folder, monkeypatch):
    from lab.setup import measure

    monkeypatch.setattr(measure, "peak_flops", lambda device, seconds: Measured(6e10, "a product"))
    monkeypatch.setattr(measure, "memory_bandwidth", lambda device, seconds: Measured(3e10, "a triad"))
    assert peaks.measure_peaks().ridge == 2.0
    (stored,) = json.loads((folder / "peaks.json").read_text()).values()
    assert stored["how"] == "a product; a triad" and stored["date"] and stored["threads"] >= 1


@pytest.mark.parametrize("rates", [(0, 1), (1, 0), (-1, 1), (float("nan"), 1), (1, float("inf"))])
def test_a_peak_without_a_rate_is_refused(rates):
    with pytest.raises(BadPolicy, match="of a peak is"):
        Peaks(*rates, source="nobody")


def test_a_measured_run_is_held_against_the_peaks(folder):
    pytest.importorskip("torch")
    import lab

    model = lab.load_model("tiny")
    assert model.peaks() is None
    peaks.keep(1e15, 1e15)
    report = lab.run(lab.fixed_workload([(1, 2, 3)], [4], [0.0]), model)
    assert 0 < report.mfu < 1 and 0 < report.mbu < 1 and "measured on this computer" in report.peak_source


def test_doctor_and_self_check_keep_what_they_measure(folder, monkeypatch):
    torch = pytest.importorskip("torch")
    from lab import selfcheck
    from lab.setup import doctor, measure

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = []
    monkeypatch.setattr(measure, "peak_flops", lambda *_: asked.append("flops") or Measured(5e10, "a product"))
    monkeypatch.setattr(measure, "memory_bandwidth", lambda *_: Measured(2e10, "a triad"))
    assert doctor.speed()["cpu_flops"] == 5e10 and peaks.this_machine().bytes_per_s == 2e10
    assert "50 GFLOP/s and 20.0 GB/s" in selfcheck._speed() and len(asked) == 1, "measured once"
    monkeypatch.setattr(peaks, "_kept", {})
    (folder / "peaks.json").unlink()
    assert "measured on this computer" in selfcheck._speed() and len(asked) == 2, "nothing was known, so it measures"


def test_the_best_that_was_ever_reached_stays_the_peak(folder, monkeypatch):
    """A measurement beside other programs says less than the quiet one before it; utilisations would exceed 1."""
    peaks.keep(4e10, 2e10, how="quiet")
    assert peaks.keep(3e10, 1e10, how="busy") == peaks.this_machine() == peaks.keep(4e10, 2e10, how="quiet")
    monkeypatch.setattr(peaks, "_kept", {})
    found = peaks.keep(5e10, 1e10, how="faster, but busy memory")
    assert (found.flops, found.bytes_per_s) == (5e10, 2e10)
    stored = next(iter(json.loads((folder / "peaks.json").read_text()).values()))
    assert (stored["flops"], stored["bytes_per_s"], stored["how"]) == (5e10, 2e10, "faster, but busy memory")


@pytest.mark.parametrize("change", [{"torch": "1.0"}, {"threads": 64}, {"name": "another"}])
def test_a_peak_of_other_threads_or_another_torch_is_replaced(folder, monkeypatch, change):
    peaks.keep(4e10, 2e10)
    key, stored = next(iter(json.loads((folder / "peaks.json").read_text()).items()))
    (folder / "peaks.json").write_text(json.dumps({key: stored | change}))
    monkeypatch.setattr(peaks, "_kept", {})
    assert peaks.keep(3e10, 1e10).flops == 3e10
