"""The seat check names what is missing and never raises; `show` shows the right lines and their file."""

import pytest

import lab
from lab.course import seat, seat_check, show


def test_seat_check_has_a_row_for_everything_and_a_verdict():
    found = seat_check()
    assert [row.what for row in found.findings] == ["Python", "packages", "model", "cores", "memory", "live parts"]
    assert repr(found).splitlines()[-1] == found.verdict
    assert all(row.text in found._repr_html_() or "&" in found._repr_html_() for row in found.findings)


def test_seat_check_says_what_to_do_without_a_model(monkeypatch):
    monkeypatch.setattr(seat.fetch_model, "is_complete", lambda: False)
    found = seat_check()
    assert not found.ready and "python3 -m lab --setup-only" in repr(found)
    assert found.verdict.startswith("Not ready")


def test_seat_check_survives_whatever_it_looks_at(monkeypatch):
    def broken(*_):
        raise OSError("disk on fire")

    monkeypatch.setattr(seat.stamp, "pins", broken)
    row = next(row for row in seat_check().findings if row.what == "packages")
    assert row.state == "note" and "disk on fire" in row.text


def test_seat_check_names_packages_that_differ(monkeypatch):
    monkeypatch.setattr(seat.stamp, "pins", lambda: [("numpy", "0.1"), ("torch", seat._version("torch").split("+")[0])])
    assert seat._packages()[0] == "note" and "numpy" in seat._packages()[1]
    monkeypatch.setattr(seat.stamp, "pins", lambda: [("no-such-package", "1")])
    assert seat._packages()[0] == "missing"


def test_show_a_method_a_class_and_an_instance():
    shown = show(lab.Static.admit)
    assert shown.title == "lab/batching/static.py · Static.admit"
    assert shown.code.startswith("def admit(self") and shown.code.splitlines()[1].startswith("    ")
    assert repr(shown).startswith("# lab/batching/static.py")
    assert "```python\ndef admit" in shown._repr_markdown_()
    assert show(seat.Finding("a", "ok", "b")).title == show(seat.Finding).title


def test_show_a_block_or_a_range():
    assert show(seat_check, "looks:").code.splitlines()[-1] == ")"
    assert (
        show(lab.Static.admit, (1, 1)).code.startswith("def admit") and "\n" not in show(lab.Static.admit, (1, 1)).code
    )
    block = show(seat.Seat, "def verdict").code.splitlines()
    assert block[0].startswith("def verdict") and block[-1].startswith("    return")


def test_show_refuses_what_no_reader_reads():
    with pytest.raises(ValueError, match="between 1 and 40"):
        show(lab.Engine)
    with pytest.raises(ValueError, match="between 1 and 40"):
        show(lab.Static, (500, 600))
    with pytest.raises(ValueError, match="no line contains"):
        show(lab.Static, "no such text")
