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


@dataclass(slots=True, repr=False)
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

    def __repr__(self) -> str:
        split = f", tp={self.tp}, pp={self.pp}" if self.tp * self.pp > 1 else ""
        return f"<SimulatedModel {self.shape.name} on {self.device.name}: {self.dtype}{split}>"

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
    short = _short(model, model.device, model.tp, model.pp)
    if short <= 0:
        return
    usable, many = model.device.memory * (1 - RESERVE), model.tp * model.pp
    most = max((link.most or 1 << 20 for link in model.device.links), default=1)
    nothing = f"No group of up to {most} {model.device.name} would do, nor any one device of the table: a smaller model"
    raise DoesNotFit(
        f"{model.shape.name} in {model.dtype} has {model.weight_bytes / 1e9:.1f} GB of weights, and {many} × "
        f"{model.device.name} leave {many * usable / 1e9:.1f} GB for them ({RESERVE:.0%} is reserved): "
        f"{short / 1e9:.1f} GB short with one block of keys and values. "
        f"{' or '.join(_ways(model)) or nothing} would do"
    )


def _ways(model: SimulatedModel) -> list[str]:
    """What would make it fit: more devices that share layers, or else more stages; another device; fewer bytes."""
    shape, one, tp, pp = model.shape, model.device, model.tp, model.pp
    wider = [f"tp={k}" for k in range(tp + 1, shape.heads + 1) if _splits(shape, k) and _fits(model, one, k, pp)][:1]
    deeper = [f"pp={k}" for k in range(pp + 1, shape.layers + 1) if _fits(model, one, tp, k)][:1]
    larger = [other for other in devices().values() if model.dtype in other.dtypes and _fits(model, other, tp, pp)]
    ways = (wider or deeper) + [f"on={other.name!r}" for other in sorted(larger, key=lambda other: other.memory)[:1]]
    return ways + (["dtype='bf16'"] if model.dtype == "fp32" and "bf16" in one.dtypes else [])


def _fits(model: SimulatedModel, one: Device, tp: int, pp: int) -> bool:
    return _joins(one, tp * pp) and _short(model, one, tp, pp) <= 0


def _short(model: SimulatedModel, one: Device, tp: int, pp: int) -> float:
    """Bytes that are missing for the weights and a first block of keys and values on tp × pp of device `one`."""
    first = 16 * Costs(model.shape, one, tp, pp, model.dtype).kv_bytes_per_token
    return model.weight_bytes + first - tp * pp * one.memory * (1 - RESERVE)


def _joins(one: Device, count: int) -> bool:
    return count == 1 or any(link.most is None or count <= link.most for link in one.links)
