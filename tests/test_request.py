from __future__ import annotations

import math

import pytest

from lab.errors import BadRequest, LabError
from lab.request import Request, SamplingParams

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -3),
        ("temperature", -0.5),
        ("temperature", NAN),
        ("temperature", INF),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("top_p", NAN),
        ("top_k", -1),
    ],
)
def test_sampling_out_of_range_names_field_and_number(field: str, value: float) -> None:
    with pytest.raises(BadRequest) as caught:
        SamplingParams(**{field: value})
    assert field in str(caught.value) and str(value) in str(caught.value)
    assert isinstance(caught.value, LabError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", NAN),  # would never end: no number of outputs reaches it
        ("max_tokens", INF),
        ("max_tokens", 2.5),
        ("max_tokens", True),
        ("max_tokens", "8"),
        ("temperature", "hot"),
        ("top_p", "0.5"),
        ("top_k", NAN),
        ("top_k", 1.5),
        ("seed", 1.5),
    ],
)
def test_sampling_of_the_wrong_kind_names_field_and_value(field: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        SamplingParams(**{field: value})
    assert field in str(caught.value) and str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (dict(id=3, prompt=[]), "of 0;"),
        (dict(id=3, prompt=None), "of 0;"),
        (dict(id=3, prompt=None, num_prompt=-5), "of -5;"),
        (dict(id=3, prompt=[1], arrival_time=-1.0), "-1.0"),
        (dict(id=3, prompt=[1], arrival_time=NAN), "nan"),
        (dict(id=3, prompt=[1], arrival_time=INF), "inf"),
    ],
)
def test_request_out_of_range_names_request_and_number(arguments: dict, names: str) -> None:
    with pytest.raises(BadRequest, match="request 3") as caught:
        Request(**arguments)
    assert names in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        dict(prompt=None, num_prompt=2.5),
        dict(prompt=None, num_prompt=NAN),
        dict(prompt=[1], arrival_time="soon"),
        dict(prompt=[1], deadline=NAN),
    ],
)
def test_request_of_the_wrong_kind_is_a_bad_request(arguments: dict) -> None:
    with pytest.raises(BadRequest, match="request 3"):
        Request(3, **arguments)


def test_a_request_is_two_integers() -> None:
    request = Request(0, [5, 6, 7], SamplingParams(max_tokens=4))
    assert (request.num_prompt, request.num_tokens, request.remaining, request.max_total) == (3, 3, 3, 6)
    request.num_computed, request.num_output, request.output = 3, 1, [9]
    assert (request.num_tokens, request.remaining) == (4, 1)  # what is called a decode


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 2, [5, 6]), (0, 3, [5, 6, 7]), (2, 4, [7, 8]), (3, 5, [8, 9]), (0, 5, [5, 6, 7, 8, 9]), (4, 4, [])],
)
def test_tokens_across_the_end_of_the_prompt(start: int, stop: int, expected: list[int]) -> None:
    request = Request(0, (5, 6, 7), output=[8, 9], num_output=2)
    assert request.tokens(start, stop) == expected


def test_a_request_without_text_has_a_length_and_no_ids() -> None:
    request = Request(4, None, num_prompt=12)
    assert request.num_tokens == 12
    with pytest.raises(BadRequest, match="request 4"):
        request.tokens(0, 1)


def test_requests_are_themselves_not_their_values() -> None:
    assert Request(0, [1]) != Request(0, [1])


def test_order_is_arrival_then_id() -> None:
    requests = [Request(2, [1], arrival_time=1.0), Request(1, [1], arrival_time=1.0), Request(3, [1])]
    assert [each.id for each in sorted(requests, key=lambda each: each.order)] == [3, 1, 2]
