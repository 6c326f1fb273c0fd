"""The device table: dense peaks, sources, and what a wrong name or number is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.errors import BadPolicy, UnknownName
from lab.simulation import hardware
from lab.simulation.hardware import Device, Fit, device, table


@pytest.mark.parametrize(
    "name, sparse",
    # what data sheets call "with sparsity", TFLOP/s: twice the dense figure
    [("a100-sxm", 624), ("h100-sxm", 1979), ("h200-sxm", 1979), ("l4", 242), ("a40", 299.4)],
)
def test_peaks_are_dense(name: str, sparse: float) -> None:
    assert device(name).peak_flops * 2 == pytest.approx(sparse * 1e12, rel=0.001)


def test_every_device_says_where_its_numbers_come_from() -> None:
    wanted = "a100-sxm a100-pcie h100-sxm h200-sxm l4 t4 rtx-4090 a40 m1-ultra m2-ultra m3-max m4-max".split()
    assert set(wanted) <= set(table())
    for one in table().values():
        assert one.sources and one.notes and one.fit.source and all(link.source for link in one.links)
        assert 20 < one.peak_flops / one.bandwidth < 500  # FLOP per byte from which arithmetic is the limit
        assert one.fit.source.startswith(("fitted on llama-2-7b", "assumed"))


def test_unknown_devices_get_the_nearest_names() -> None:
    with pytest.raises(UnknownName, match="device 'h100' is not known; did you mean h100-sxm"):
        device("h100")
    assert device("H100-SXM") is device("h100-sxm") is device(device("h100-sxm"))


def test_this_machine_must_be_calibrated_and_is_then_found(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LAB_CALIBRATION", str(tmp_path / "deep" / "machine.json"))
    with pytest.raises(BadPolicy, match="lab calibrate"):
        device("this-machine")
    fit = Fit(mfu=0.5, correction=((1, 1.2), (64, 0.9)), source="measured")
    mine = Device("this-machine", "a laptop", 1e11, 2e10, 8e9, dtypes=("fp32",), fit=fit, sources=("measured",))
    assert hardware.save_this_machine(mine) == tmp_path / "deep" / "machine.json"
    assert device("this-machine") == mine
    (tmp_path / "deep" / "machine.json").write_text('{"name": "x"', encoding="utf-8")
    with pytest.raises(BadPolicy, match="lab calibrate"):
        device("this-machine")


def test_links_by_how_many_they_join() -> None:
    card = device("a100-pcie")
    assert card.link(2).bandwidth > 5 * card.link(4).bandwidth
    with pytest.raises(BadPolicy, match="16 × a100-pcie: the table has no link"):
        card.link(16)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"peak_flops": -1}, "peak_flops of -1"),
        ({"bandwidth": 0}, "bandwidth of 0; it must be above 0"),
        ({"memory": float("nan")}, "memory of nan"),
        ({"dtypes": ("fp7",)}, "fp7"),
        ({"dtypes": ()}, "computes nothing"),
    ],
)
def test_numbers_that_make_no_device(change, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        replace(device("l4"), **change)


def test_fields_that_no_device_has() -> None:
    with pytest.raises(BadPolicy, match="wheels"):
        Device.from_dict({**device("l4").to_dict(), "wheels": 4})
    assert Device.from_dict(device("l4").to_dict()) == device("l4")


@pytest.mark.parametrize(
    "values, says",
    [
        ({"mfu": 0}, "mfu of 0; it must be above 0"),
        ({"p": 0.5}, "p of 0.5; it must be at least 1"),
        ({"overhead": -1e-6}, "overhead"),
        ({"correction": ((8, 1.0), (8, 1.1))}, "rising order"),
    ],
)
def test_fits_that_make_no_sense(values, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        Fit(**values)
