"""The batching curve: right shape and right work; its times belong to the machine."""

import lab
from lab.execution.curve import _Crowd, decode_curve


def test_one_point_per_batch_size_and_consistent_units():
    curve = decode_curve(lab.load_model("tiny"), batches=(1, 3), context=20, steps=3)
    assert [point.batch for point in curve] == [1, 3]
    for point in curve:
        assert point.step_ms > 0
        assert abs(point.tokens_per_s * point.step_ms / 1000 - point.batch) < 1e-6


def test_every_request_gets_a_token_per_step_in_its_own_blocks():
    crowd = _Crowd(lab.load_model("tiny"), size=3, context=30, steps=4)
    for _ in range(4):
        assert crowd.step() > 0
    assert [request.num_computed for request in crowd.requests] == [34, 34, 34]
    assert [len(request.output) for request in crowd.requests] == [4, 4, 4]
    blocks = [block for request in crowd.requests for block in request.block_table]
    assert len(set(blocks)) == len(blocks)
