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


def test_a_step_and_its_products_are_timed_for_the_same_batch(monkeypatch):
    from lab.execution import curve
    from lab.execution.linear import Linear

    model, shapes = lab.load_model("tiny"), []
    call = Linear.__call__

    def noted(self, x, **onto):
        shapes.append((x.shape[0], *self.shape))
        return call(self, x, **onto)

    monkeypatch.setattr(Linear, "__call__", noted)
    (point,) = curve.product_share(model, batches=(3,), context=20, steps=2)
    assert point.batch == 3 and abs(point.ratio - point.step_ms / point.products_ms) < 1e-9
    per_step = 4 * model.config.num_layers + 1
    assert len(shapes) == 2 * per_step  # both are recorded once and replayed from then on
    assert shapes[:per_step] == shapes[per_step:]


def test_a_curve_without_recordings_computes_every_step():
    from lab.execution.curve import _Crowd

    model = lab.load_model("tiny")
    for recorded in (True, False):
        crowd = _Crowd(model, 3, 20, 4, recorded)
        for _ in range(4):
            crowd.step()
        assert sum(steps.replays for steps in crowd.runner._idle) == (3 if recorded else 0)
    assert [point.batch for point in lab.decode_curve(model, (1, 2), steps=2, recorded=False)] == [1, 2]
