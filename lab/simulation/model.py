"""`lab.simulated`: a model on a device you do not have, priced from tables and checked against measured profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.errors import BadPolicy, DoesNotFit
from lab.numbers import whole
from lab.peaks import Peaks
from lab.plan import StepPlan
from lab.simulation.costs import Costs
from lab.simulation.hardware import NUMBER_BYTES, Device, device
from lab.simulation.hardware import table as devices
from lab.simulation.priced import Priced
from lab.simulation.runner import SimulatedRunner
from lab.simulation.shapes import ModelShape, model_shape
from lab.simulation.work import work_of

#: Share of a device's memory left for activations, kernels' workspace and the driver: vLLM's default. With it the
#: pools of the vLLM paper (arXiv:2309.06180, table 1) come out within 7 %.
RESERVE = 0.10


@dataclass(slots=True)
class SimulatedModel:
    """Has what `lab.run` asks of a model. Nothing is computed: requests run to `max_tokens`, output ids are absent.

    Raises BadPolicy for parallelism that cannot split the model, and DoesNotFit where no key or value fits beside the
    weights, with the GB that are missing and what would do.
    """

    shape: ModelShape
    device: Device
    tp: int = 1
    pp: int = 1
    dtype: str | None = None
    microbatches: int | None = None
    eos_token_ids: frozenset[int] = field(init=False, default=frozenset())
    costs: Costs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.dtype = self.dtype or self.device.dtypes[0]
        if self.dtype not in self.device.dtypes:
            raise BadPolicy(f"{self.device.name} has no peak for {self.dtype}; it has {', '.join(self.device.dtypes)}")
        whole(self.pp, "pipeline stages (pp) of")
        if self.pp > self.shape.layers:
            raise BadPolicy(f"{self.pp} pipeline stages for {self.shape.layers} layers; at most one stage per layer")
        if self.microbatches is not None:
            whole(self.microbatches, "microbatches of")
        _check_split(self.shape, self.tp)
        self.costs = self._costs(16)
        _check_fits(self)

    def _costs(self, block_size: int) -> Costs:
        return Costs(self.shape, self.device, self.tp, self.pp, self.dtype, block_size, self.microbatches)

    @property
    def name(self) -> str:
        """Model, device and how many of them, and that it is simulated."""
        many = "".join(f" {kind}{count}" for kind, count in (("tp", self.tp), ("pp", self.pp)) if count > 1)
        return f"{self.shape.name} on {self.device.name}{many} (simulated)"

    @property
    def max_context(self) -> int:
        """Most tokens a request may have, prompt and output together."""
        return self.shape.max_context

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps, over all layers and devices."""
        return self.costs.kv_bytes_per_token

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights over all devices."""
        return self.shape.parameters * NUMBER_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> float:
        """Bytes left for keys and values over all devices; below 0 where even the weights do not fit."""
        return self.tp * self.pp * self.device.memory * (1 - RESERVE) - self.weight_bytes

    def default_blocks(self, block_size: int = 16) -> int:
        """Blocks of `block_size` tokens that fit beside the weights."""
        return int(self.kv_bytes // (whole(block_size, "a block size of") * self.kv_bytes_per_token))

    def peaks(self) -> Peaks:
        """Peak FLOP/s and byte/s of all devices together."""
        many = self.tp * self.pp
        source = f"simulated: {f'{many} × ' if many > 1 else ''}{self.device.title}, dense {self.dtype} peak"
        return Peaks(self.device.peak_flops * many, self.device.bandwidth * many, source)

    def price(self, plan: StepPlan) -> float:
        """Seconds of one step of `plan`."""
        return self.costs.seconds(work_of(plan))

    def explain(self, plan: StepPlan) -> dict[str, float]:
        """Seconds of one step and what they are spent on, FLOPs, bytes, and the shares of the peaks (mfu, mbu)."""
        work, peaks = work_of(plan), self.peaks()
        seconds, flops, moved = self.costs.seconds(work), self.costs.flops(work), self.costs.bytes(work)
        shares = {"mfu": flops / seconds / peaks.flops, "mbu": moved / seconds / peaks.bytes_per_s} if seconds else {}
        return {"seconds": seconds, "flops": flops, "bytes": moved, **shares, **self.costs.breakdown(work)}

    def encode_chat(self, messages: str | Sequence[dict[str, str]]) -> list[int]:
        """Stand-in token ids, one per four characters, equal where the characters are."""
        return Priced().encode_chat(messages)

    def runner(self, num_blocks: int, block_size: int = 16, num_host_blocks: int = 0, **_: Any) -> SimulatedRunner:
        """A runner whose block copies are of `block_size` tokens. The pool's size costs nothing."""
        return SimulatedRunner(self._costs(block_size))


def simulated(
    model: str | ModelShape = "llama-3-8b",
    on: str | Device = "h100-sxm",
    tp: int = 1,
    pp: int = 1,
    dtype: str | None = None,
    microbatches: int | None = None,
) -> SimulatedModel:
    """`model` on `tp` × `pp` of the device `on`, for `lab.run`: priced, never computed.

    `dtype` is that of weights and keys, the device's usual one unless given. `microbatches` parts of a plan fill a
    pipeline of `pp` stages (as many as stages unless given). Raises UnknownName, BadPolicy or DoesNotFit.
    """
    return SimulatedModel(model_shape(model), device(on), tp, pp, dtype, microbatches)


def _check_split(shape: ModelShape, tp: int) -> None:
    whole(tp, "tensor parallelism (tp) of")
    if shape.heads % tp or (shape.kv_heads % tp and tp % shape.kv_heads):
        good = [k for k in range(1, shape.heads + 1) if _splits(shape, k)]
        raise BadPolicy(
            f"tp={tp} cannot share {shape.heads} heads ({shape.kv_heads} of keys) of {shape.name}; "
            f"{', '.join(map(str, good))} can"
        )


def _splits(shape: ModelShape, tp: int) -> bool:
    return not shape.heads % tp and not (shape.kv_heads % tp and tp % shape.kv_heads)


def _check_fits(model: SimulatedModel) -> None:
    """The weights and a first block of keys and values must fit, or the message says what would."""
    short = 16 * model.kv_bytes_per_token - model.kv_bytes
    if short <= 0:
        return
    usable, many = model.device.memory * (1 - RESERVE), model.tp * model.pp
    needed = model.weight_bytes + 16 * model.kv_bytes_per_token
    wider = [tp for tp in (2, 4, 8, 16, 32, 64) if tp > model.tp and tp * model.pp * usable > needed]
    ways = [f"tp={tp}" for tp in wider if _splits(model.shape, tp) and _joins(model.device, tp)][:1]
    large = [one for one in devices().values() if many * one.memory * (1 - RESERVE) > needed and _joins(one, model.tp)]
    ways += [f"on={one.name!r}" for one in sorted(large, key=lambda one: one.memory)[:1]]
    if model.dtype == "fp32" and "bf16" in model.device.dtypes:
        ways.append("dtype='bf16'")
    raise DoesNotFit(
        f"{model.shape.name} in {model.dtype} has {model.weight_bytes / 1e9:.1f} GB of weights, and {many} × "
        f"{model.device.name} leave {many * usable / 1e9:.1f} GB for them ({RESERVE:.0%} is reserved): "
        f"{short / 1e9:.1f} GB short with one block of keys and values. "
        f"{' or '.join(ways) or 'More pipeline stages (pp) or a smaller model'} would do"
    )


def _joins(one: Device, count: int) -> bool:
    return count == 1 or any(link.most is None or count <= link.most for link in one.links)
