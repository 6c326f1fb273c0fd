"""What work costs: FLOPs, bytes and seconds of a StepWork for one model on one device or a group, each O(1).

Per layer, the projections follow a soft roofline (hardware.Fit); norms, RoPE and residuals move activations. Attention
is priced apart: chunks by their visible keys (a soft roofline again), one-token rows by the keys they read. The head is
paid for sampled rows only. Left out: the embedding look-up, sampling kernels beyond `step_overhead`, tile quantisation
(257 tokens cost more than 256 on a GPU), clock throttling.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil

from lab.simulation.hardware import NUMBER_BYTES, Device, Fit
from lab.simulation.lanes import Demand
from lab.simulation.shapes import ModelShape
from lab.simulation.work import StepWork


class Costs:
    """Prices for `shape` on `tp` × `pp` of `device`, in numbers of `dtype`; `block_size` prices block copies.

    Tensor parallelism (Shoeybi et al., arXiv:1909.08053) shards matrices and heads and pays two all-reduces per layer.
    Pipeline parallelism splits layers; a plan passes as up to `microbatches` equal parts of its rows (GPipe,
    arXiv:1811.06965), of which the bubble is (pp − 1) / (parts + pp − 1). One plan is in flight at a time, so the
    next plan does not fill the bubble.
    """

    def __init__(
        self,
        shape: ModelShape,
        device: Device,
        tp: int = 1,
        pp: int = 1,
        dtype: str = "bf16",
        block_size: int = 16,
        microbatches: int | None = None,
    ):
        self.shape, self.device, self.tp, self.pp, self.dtype = shape, device, tp, pp, dtype
        self.microbatches = microbatches or pp
        fit, number = device.fit, NUMBER_BYTES[dtype]
        self._fit, self._number = fit, number
        flops, memory = device.peak_flops * fit.mfu, device.bandwidth * fit.mbu
        full, sharded = shape.activations
        self._read = shape.layer_matrices * number / tp / memory  # seconds per layer at 0 tokens
        self._multiply = 2 * shape.layer_matrices / tp / flops  # seconds per layer and token
        self._pass = (full + sharded / tp) * number / memory
        self._head_read = shape.head_matrix * number / tp / memory
        self._head_multiply = 2 * shape.head_matrix / tp / flops
        self._layers = ceil(shape.layers / pp)  # of the slowest stage
        self._dense: dict[tuple[int, int, int], float] = {}
        self._count()
        self._price_attention(fit)
        self._price_links(block_size)

    def _count(self) -> None:
        """FLOPs and bytes on all devices, per token through all layers and per sampled row."""
        shape, number = self.shape, self._number
        full, sharded = shape.activations
        self._token_flops = 2.0 * shape.layers * shape.layer_matrices
        self._pair_flops = 4.0 * shape.layers * shape.query_size
        self._head_flops = 2.0 * shape.head_matrix
        self._weight_bytes = float(shape.layers * shape.layer_matrices * number)
        self._token_bytes = float(shape.layers * (full * self.tp + sharded) * number)
        self._head_bytes = float(shape.head_matrix * number)

    def _price_attention(self, fit: Fit) -> None:
        """Seconds per pair and per key of one device's heads in all layers; a key head is held at least once."""
        shape, number = self.shape, self._number
        kv_heads = max(1.0, shape.kv_heads / self.tp)
        kv_bytes = 2 * shape.layers * kv_heads * shape.head_dim * number
        self._pair = self._pair_flops / self.tp / (self.device.peak_flops * fit.attention_mfu)
        self._key = kv_bytes / (self.device.bandwidth * fit.attention_mbu)
        self._single = _soft(self._pair, self._key, fit.p)  # one query over one key
        self._rectangle: tuple[float, ...] = ()  # seconds per pair, per key, per step
        if fit.rectangle:
            mfu, mbu, fixed = fit.rectangle
            pair, key = self._pair * fit.attention_mfu / mfu, self._key * fit.attention_mbu / mbu
            self._rectangle = pair, key, shape.layers * fixed
        self._write = kv_bytes / (self.device.bandwidth * fit.mbu)
        self.kv_bytes_per_token = round(kv_bytes * self.tp)  # on all devices of all stages
        self._kv_per_device = kv_bytes / self.pp

    def _price_links(self, block_size: int) -> None:
        shape, device, number = self.shape, self.device, self._number
        self._reduce_fixed = self._reduce_token = self._send_fixed = self._send_token = 0.0
        if self.tp > 1:
            link = device.link(self.tp)
            self._reduce_fixed = 2 * link.latency
            self._reduce_token = 2 * shape.hidden * number * 2 * (self.tp - 1) / self.tp / link.bandwidth
        if self.pp > 1:
            link = device.link(self.tp * self.pp)
            self._send_fixed, self._send_token = link.latency, shape.hidden * number / link.bandwidth
        block = block_size * self._kv_per_device
        self._copy = 2 * block / (device.bandwidth * self._fit.mbu)
        self._swap = block / device.host_link.bandwidth

    # -- seconds -------------------------------------------------------------------------------------------
    def layer_seconds(self, tokens: float) -> float:
        """Projections, norms and residuals of one layer for `tokens` tokens, without attention and all-reduce."""
        fit = self._fit
        seconds = _soft(self._read, self._multiply * tokens, fit.p) + self._pass * tokens + fit.overhead
        return seconds * _at(fit.correction, tokens) if fit.correction else seconds

    def seconds(self, work: StepWork) -> float:
        """Seconds of one step."""
        return self.fixed_seconds(work) + self.key_seconds(work) * work.single_keys + self.copy_seconds(work)

    def fixed_seconds(self, work: StepWork) -> float:
        """Seconds of what stays the same while a decode step repeats: all but single rows' keys and block copies."""
        key = (work.tokens, work.sampled, work.rows)
        if (seconds := self._dense.get(key)) is None:
            if len(self._dense) > 100_000:
                self._dense.clear()
            seconds = self._dense[key] = sum(self._dense_parts(*key))
        return seconds + self._chunk_seconds(work)

    def _dense_parts(self, tokens: int, sampled: int, rows: int) -> tuple[float, float, float, float, float]:
        """Projections, writing keys, head, communication, host: what depends on these three counts alone."""
        if not tokens:
            return (0.0,) * 5
        fit, parts = self._fit, self._parts(rows)
        share, turns = tokens / parts, parts + self.pp - 1
        layers = turns * self._layers * self.layer_seconds(share)
        head = 0.0
        if sampled:  # the last stage's
            head = parts * _soft(self._head_read, self._head_multiply * sampled / parts, fit.p)
        reduce = turns * self._layers * (self._reduce_fixed + self._reduce_token * share)
        send = (self.pp - 1) * (self._send_fixed + self._send_token * share)
        host = fit.step_overhead + fit.row_overhead * rows
        return layers, turns * self._write * share / self.pp, head, reduce + send, host

    def breakdown(self, work: StepWork) -> dict[str, float]:
        """Seconds of one step by what they are spent on (a pipeline's bubble in each); the sum is `seconds`."""
        layers, write, head, communication, host = self._dense_parts(work.tokens, work.sampled, work.rows)
        attention = write + self.key_seconds(work) * work.single_keys + self._chunk_seconds(work)
        return {
            "layers": layers,
            "attention": attention,
            "head": head,
            "communication": communication,
            "host": host,
            "copies": self.copy_seconds(work),
        }

    def _apart(self, work: StepWork) -> tuple[float, ...]:
        """Seconds per pair, per key and per step where a padded kernel of its own computes it; empty otherwise."""
        return self._rectangle if work.padded else ()

    def _chunk_seconds(self, work: StepWork) -> float:
        """Attention of longer rows, and what a padded kernel takes for every rectangle."""
        if rectangle := self._apart(work):
            pair, key, fixed = rectangle
            return self._passes(work.rows) * (fixed + pair * work.chunk_pairs + key * work.chunk_keys)
        if not work.chunk_keys:
            return 0.0
        return self._passes(work.rows) * _soft(self._pair * work.chunk_pairs, self._key * work.chunk_keys, self._fit.p)

    def key_seconds(self, work: StepWork) -> float:
        """Seconds per key that the plan's one-token rows read; pipeline stages read theirs at the same time."""
        pair, key, _ = self._apart(work) or (self._single, 0.0, 0.0)
        return (pair + key) * self._passes(work.rows)

    def copy_seconds(self, work: StepWork) -> float:
        """Seconds of the block copies before the step: on the device, and over the host link."""
        return work.copies * self._copy + work.swaps * self._swap

    def _parts(self, rows: int) -> int:
        return max(1, min(self.microbatches, rows))

    def _passes(self, rows: int) -> float:
        """What a pipeline makes of work that is spread over all stages and parts: 1 for one stage."""
        parts = self._parts(rows)
        return (parts + self.pp - 1) / (parts * self.pp)

    def demand(self, work: StepWork) -> Demand:
        """Seconds of one step alone, and the shares of them in which arithmetic and memory are busy."""
        seconds, stages = self.seconds(work), self.pp
        if not work.tokens:
            return Demand(seconds, 0.0, 1.0 if work.copies else 0.0)
        layers, keys = self.shape.layers, work.single_keys + work.chunk_keys
        pair, key, _ = self._apart(work) or (self._pair, self._key, 0.0)
        compute = layers * self._multiply * work.tokens + pair * (work.chunk_pairs + work.single_keys)
        memory = layers * (self._parts(work.rows) * self._read + self._pass * work.tokens)
        memory += key * keys + self._write * work.tokens + self._copy * work.copies
        if work.sampled:
            compute += self._head_multiply * work.sampled
            memory += self._head_read
        return Demand(seconds, min(1.0, compute / stages / seconds), min(1.0, memory / stages / seconds))

    # -- counts --------------------------------------------------------------------------------------------
    def flops(self, work: StepWork, steps: int = 1) -> float:
        """Floating-point operations of a stretch of `steps` steps on all devices; norms and softmax are left out.

        A multiply-add is two operations.
        """
        dense = self._token_flops * work.tokens + self._head_flops * work.sampled
        return steps * (dense + self._pair_flops * work.chunk_pairs) + self._pair_flops * work.keys_of(steps)

    def bytes(self, work: StepWork, steps: int = 1) -> float:
        """Bytes a stretch moves through the devices' memories: weights (once per part), activations, keys, values."""
        if not work.tokens:
            return 0.0
        weights = self._parts(work.rows) * (self._weight_bytes + (self._head_bytes if work.sampled else 0))
        kept = steps * (work.chunk_keys + work.tokens) + work.keys_of(steps)
        return steps * (weights + self._token_bytes * work.tokens) + self.kv_bytes_per_token * kept


def _soft(a: float, b: float, p: float) -> float:
    """(a^p + b^p)^(1/p): the sum for p = 1, the larger for p → ∞. Written so that no power underflows."""
    if a < b:
        a, b = b, a
    return a * (1.0 + (b / a) ** p) ** (1.0 / p) if b else a


def _at(points: tuple[tuple[float, float], ...], x: float) -> float:
    """The broken line through `points` at x, constant outside."""
    place = bisect_right(points, (x, float("inf")))
    if place == 0 or place == len(points):
        return points[max(0, place - 1)][1]
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
