from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness import assert_solo, request, run_all

import lab.batching
import lab.ordering
from lab import axes
from lab.batching.continuous import Continuous
from lab.batching.static import Static
from lab.chunking import TokenBudget, WholePrompt
from lab.errors import BadPolicy
from lab.ordering.arrival import Fcfs
from lab.preemption import Recompute


@pytest.mark.parametrize(
    ("axis", "spec", "kind", "attributes"),
    [
        ("batching", "static:3", Static, dict(max_batch=3)),
        ("batching", "static", Static, dict(max_batch=8)),
        ("batching", "static:max_batch=5", Static, dict(max_batch=5)),
        ("batching", "continuous:16", Continuous, dict(max_running=16)),
        ("chunking", "whole", WholePrompt, {}),
        ("chunking", "budget:64", TokenBudget, dict(max_tokens=64)),
        ("chunking", "budget:max_tokens=7", TokenBudget, dict(max_tokens=7)),
        ("ordering", "fcfs", Fcfs, {}),
        ("preemption", "recompute", Recompute, {}),
    ],
)
def test_a_spec_becomes_a_policy_and_back(axis: str, spec: str, kind: type, attributes: dict) -> None:
    policy = axes.parse(axis, spec)
    assert type(policy) is kind
    assert {name: getattr(policy, name) for name in attributes} == attributes
    again = axes.parse(axis, axes.describe(policy))
    assert type(again) is kind and {name: getattr(again, name) for name in attributes} == attributes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("0.5", 0.5),
        ("2ms", 0.002),
        ("300us", 300e-6),
        ("1.5s", 1.5),
        ("1e3", 1000.0),
        ("pid", "pid"),
        ("us", "us"),
        ("s", "s"),
        ("", ""),
    ],
)
def test_values(text: str, value: object) -> None:
    found = axes._value(text)
    assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert type(found) is type(value)


def test_an_object_is_taken_as_it_is() -> None:
    policy = Static(2)
    assert axes.parse("batching", policy) is policy


@pytest.mark.parametrize(
    ("axis", "spec", "says"),
    [
        (
            "batching",
            "stattic:8",
            "batching 'stattic:8' is not known; there are .*continuous.*static.*, or module:Class",
        ),
        ("ordering", "", "ordering '' is not known; there are .*fcfs"),
        ("batching", "no_such_module:Thing", "'no_such_module:Thing' is not known"),
        ("batching", "json:Nothing", "'json:Nothing' is not known"),
        ("batching", "static:0", "max_batch 0; it must be at least 1"),
        ("batching", "continuous:-2", "max_running -2; it must be at least 1"),
        ("chunking", "budget:0", "token budget of 0; it must be at least 1"),
        ("chunking", "whole:3", "chunking 'whole:3': .*it takes"),
        ("batching", "static:size=3", r"batching 'static:size=3': .*it takes .*max_batch: .*int.* = 8"),
        ("chunking", "budget:1:2:3:4:5", "chunking 'budget:1:2:3:4:5'.*it takes"),
    ],
)
def test_errors_say_what_is_wrong_and_what_would_be_right(axis: str, spec: str, says: str) -> None:
    with pytest.raises(BadPolicy, match=says):
        axes.parse(axis, spec)


@pytest.mark.parametrize(
    ("axis", "spec"),
    [
        ("batching", "continuous:nan"),
        ("batching", "continuous:2.5"),
        ("batching", "static:inf"),
        ("chunking", "budget:nan"),
        ("chunking", "budget:1e3"),
        ("batching", ":8"),
        ("batching", "json:JSONDecoder"),
        ("batching", 8),
        ("batching", None),
    ],
)
def test_specs_that_cannot_work_are_refused(axis: str, spec: object) -> None:
    with pytest.raises(BadPolicy):
        axes.parse(axis, spec)


POLICY = '''
from lab.batching.continuous import Continuous


class Pair(Continuous):
    """At most two, or what one says."""

    name = "pair-test"

    def __init__(self, max_running: int = 2):
        super().__init__(max_running)
'''


def test_module_and_class_name_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "course_policy.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert axes.parse("batching", "course_policy:Pair").max_running == 2
    assert axes.parse("batching", "course_policy:Pair:3").max_running == 3
    with pytest.raises(BadPolicy, match="it takes"):
        axes.parse("batching", "course_policy:Pair:1:2")
    requests = [request(id, 4, 3) for id in range(4)]
    engine = run_all(requests, batching="course_policy:Pair")
    assert max(len(step.rows) for step in engine.trace) == 2 and engine.trace.meta["axes"]["batching"] == "pair-test:2"
    assert_solo(requests)


def test_a_class_dropped_into_an_axis_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dropped_in.py").write_text(POLICY)
    with pytest.raises(BadPolicy, match="'pair-test' is not known"):
        axes.parse("batching", "pair-test")
    monkeypatch.setattr(lab.batching, "__path__", [*lab.batching.__path__, str(tmp_path)])
    axes.policies.cache_clear()
    try:
        assert axes.parse("batching", "pair-test:5").max_running == 5
        with pytest.raises(BadPolicy, match="pair-test"):
            axes.parse("batching", "other-test")  # listed among those that exist
    finally:
        axes.policies.cache_clear()
        sys.modules.pop("lab.batching.dropped_in", None)


def test_protocols_and_helpers_are_no_policies() -> None:
    for axis in ("batching", "chunking", "ordering", "preemption"):
        found = axes.policies(axis)
        assert found and all(isinstance(name, str) and found[name].name == name for name in found)
        assert not {"Batching", "Ordering", "Chunking", "Preemption"} & {kind.__name__ for kind in found.values()}


def test_every_policy_has_a_spec_that_makes_it_again() -> None:
    for axis in ("batching", "chunking", "ordering", "preemption"):
        for name, kind in axes.policies(axis).items():
            try:
                policy = axes.parse(axis, name)
            except BadPolicy:
                continue  # wants arguments
            text = axes.describe(policy)
            assert text.split(":")[0] == name
            assert type(axes.parse(axis, text)) is kind and axes.describe(axes.parse(axis, text)) == text
