"""Checks of notebook 11: a roofline by hand, a pool of keys and values, the smallest machine, a mistyped peak.

Written together with notebooks/instructor/source/11_two_clocks.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.course.checks import Probe, exercise
from lab.course.scale import decode_seconds
from lab.course.wrong_price import priced, published
from lab.errors import LabError
from lab.simulation.model import SimulatedModel, simulated

H100 = {"peak_flops": 989e12, "bandwidth": 3.35e12}


def step_seconds(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    """A solution of 11.1."""
    return max(2 * parameters / bandwidth, 2 * parameters * tokens / peak_flops)


def _bytes_per_token(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    return max(2 * parameters * tokens / bandwidth, 2 * parameters * tokens / peak_flops)


def _one_operation(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    return max(2 * parameters / bandwidth, parameters * tokens / peak_flops)


def _one_byte(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    return max(parameters / bandwidth, 2 * parameters * tokens / peak_flops)


def _sum(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    return 2 * parameters / bandwidth + 2 * parameters * tokens / peak_flops


def _memory_alone(tokens: int, parameters: float, peak_flops: float, bandwidth: float) -> float:
    return 2 * parameters / bandwidth


@exercise(
    "11.1",
    "A step on the roofline",
    hints=(
        "Two things happen at the same time: weights are fetched, and tokens are computed. The slower one counts.",
        "Fetching does not depend on the tokens: 2 bytes per parameter. Computing does: 2 operations each, per token.",
        "max(2 * parameters / bandwidth, 2 * parameters * tokens / peak_flops)",
    ),
    solution=lambda: step_seconds,
    wrong={
        "fetches the weights anew for every token": lambda: _bytes_per_token,
        "a multiply-add taken for one operation": lambda: _one_operation,
        "one byte per parameter": lambda: _one_byte,
        "one after the other": lambda: _sum,
        "memory alone": lambda: _memory_alone,
    },
)
def roofline(answer: Any, probe: Probe) -> None:
    """answer(tokens, parameters, peak_flops, bandwidth) -> seconds."""
    probe.step("it is a function")
    probe.function(answer, "step_seconds")
    probe.step("one token: the time it takes to fetch the weights, 2 bytes each")
    probe.close(answer(1, 7e9, **H100), 14e9 / 3.35e12, "step_seconds(1, 7e9) on an H100, in s")
    probe.step("a few tokens take no longer: the weights are fetched once")
    probe.close(answer(64, 7e9, **H100), 14e9 / 3.35e12, "step_seconds(64, 7e9) on an H100, in s")
    probe.step("many tokens: 2 operations per parameter and token")
    probe.close(answer(4096, 7e9, **H100), 14e9 * 4096 / 989e12, "step_seconds(4096, 7e9) on an H100, in s")
    probe.step("other machines and models, below and above their ridge")
    for tokens, parameters, peak, bandwidth in (
        (100, 1e9, 312e12, 2e12),
        (200, 1e9, 312e12, 2e12),
        (3, 5e8, 1e12, 1e12),
    ):
        want = step_seconds(tokens, parameters, peak, bandwidth)
        got = answer(tokens, parameters, peak, bandwidth)
        probe.close(got, want, f"step_seconds({tokens}, {parameters:g}, {peak:g}, {bandwidth:g})")


def pool_tokens(memory: float, devices: int, parameters: float, layers: int, kv_heads: int, head_dim: int) -> int:
    """A solution of 11.2."""
    left = 0.9 * memory * devices - 2 * parameters
    return max(0, int(left // (2 * layers * kv_heads * head_dim * 2)))


def _wrong_pool(kind: str) -> Any:
    def pool(memory: float, devices: int, parameters: float, layers: int, kv_heads: int, head_dim: int) -> int:
        left, per_token = 0.9 * memory * devices - 2 * parameters, 4 * layers * kv_heads * head_dim
        if kind == "weights":
            left = 0.9 * memory * devices - 2 * parameters * devices
        if kind == "one device":
            left = 0.9 * memory - 2 * parameters
        if kind == "reserve":
            left = memory * devices - 2 * parameters
        if kind == "after":
            left = 0.9 * (memory * devices - 2 * parameters)
        if kind == "keys":
            per_token = 2 * layers * kv_heads * head_dim
        if kind == "negative":
            return int(left // per_token)
        return max(0, int(left // per_token))

    return pool


@exercise(
    "11.2",
    "Room for keys and values",
    hints=(
        "First the bytes that are left: 90 % of all memory, minus the weights, which all devices together hold once.",
        "A token keeps a key and a value, in every layer, for every key/value head, head_dim numbers of 2 bytes.",
        "max(0, int((0.9 * memory * devices - 2 * parameters) // (2 * layers * kv_heads * head_dim * 2)))",
    ),
    solution=lambda: pool_tokens,
    wrong={
        "every device holds all weights": lambda: _wrong_pool("weights"),
        "forgets the other devices": lambda: _wrong_pool("one device"),
        "nothing is reserved": lambda: _wrong_pool("reserve"),
        "reserved from what the weights leave": lambda: _wrong_pool("after"),
        "keys without values": lambda: _wrong_pool("keys"),
        "below zero where the weights do not fit": lambda: _wrong_pool("negative"),
    },
)
def pool(answer: Any, probe: Probe) -> None:
    """answer(memory, devices, parameters, layers, kv_heads, head_dim) -> tokens."""
    probe.step("it is a function")
    probe.function(answer, "pool_tokens")
    probe.step("a made-up machine: 1,000 bytes, 100 parameters, a token keeps 4 bytes")
    probe.true(
        answer(1000, 1, 100, 1, 1, 1) in (175, 175.0),
        f"900 − 200 bytes hold 175 tokens, got {answer(1000, 1, 100, 1, 1, 1)!r}",
    )
    for model in (simulated("llama-3-8b", "h100-sxm"), simulated("llama-3-70b", "h100-sxm", tp=4)):
        probe.step(f"{model.name}: within a block of what the simulation has")
        probe.close(answer(**sizes(model)), 16 * model.default_blocks(16), "the pool (tokens)", within=1e-4)
    probe.step("where the weights do not fit there is room for nothing")
    probe.equal(answer(1000, 1, 1000, 1, 1, 1), 0, "pool_tokens(1000, 1, 1000, 1, 1, 1)")


def sizes(model: SimulatedModel) -> dict[str, Any]:
    """What pool_tokens is given for a simulated model."""
    shape = model.shape
    heads = {"layers": shape.layers, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
    return {"memory": model.device.memory, "devices": model.tp * model.pp, "parameters": shape.parameters, **heads}


#: Exercise 11.3: what a machine for Llama-3-70B must offer, and the machines that may be chosen.
READERS, CONTEXT, STEP_LIMIT = 32, 4000, 0.035
CHOICES = ("a100-sxm", "h100-sxm", "h200-sxm")


def judged(on: str, tp: int) -> tuple[int, float]:
    """(tokens that fit, seconds of a decode step for the readers) of Llama-3-70B on `tp` devices."""
    model = simulated("llama-3-70b", on, tp=tp)
    return 16 * model.default_blocks(16), decode_seconds(model, READERS, CONTEXT)


def fewest() -> int:
    """Devices of the smallest choice that keeps both promises."""
    good = []
    for on in CHOICES:
        for tp in (1, 2, 4, 8):
            try:
                tokens, seconds = judged(on, tp)
            except LabError:
                continue
            if tokens >= READERS * CONTEXT and seconds <= STEP_LIMIT:
                good.append(tp)
    return min(good)


@exercise(
    "11.3",
    "The smallest machine for 70 billion parameters",
    hints=(
        "Try them all: three devices, tp = 1, 2, 4 or 8. judged(on, tp) gives the pool and the step.",
        "Two promises can fail: too little room for keys and values, or a step that is too slow.",
        "Fewest devices first: is there one with two of them that keeps both promises?",
    ),
    solution=lambda: {"on": "h200-sxm", "tp": 2},
    wrong={
        "fits, but leaves no room for so many contexts": lambda: {"on": "h100-sxm", "tp": 2},
        "room enough, but too slow": lambda: {"on": "a100-sxm", "tp": 4},
        "more devices than needed": lambda: {"on": "h100-sxm", "tp": 4},
        "the weights alone do not fit": lambda: {"on": "h200-sxm", "tp": 1},
        "not one of the choices": lambda: {"on": "l4", "tp": 8},
        "no dict": lambda: "h200-sxm",
    },
)
def machine(answer: Any, probe: Probe) -> None:
    """answer is dict(on=..., tp=...)."""
    probe.step("it is a dict with on and tp")
    probe.true(isinstance(answer, Mapping) and set(answer) == {"on", "tp"}, f"got {answer!r}, not dict(on=…, tp=…)")
    on, tp = answer["on"], answer["tp"]
    probe.true(isinstance(on, str) and on in CHOICES, f"on is {on!r}; there are {', '.join(CHOICES)}")
    probe.true(type(tp) is int and tp in (1, 2, 4, 8), f"tp is {tp!r}; it must be 1, 2, 4 or 8")
    probe.step("the weights fit")
    try:
        tokens, seconds = judged(on, tp)
    except LabError as error:
        probe.true(False, str(error))
        return
    probe.step(f"there is room for {READERS} contexts of {CONTEXT:,} tokens")
    probe.true(tokens >= READERS * CONTEXT, f"the pool holds {tokens:,} tokens, {READERS * CONTEXT:,} are needed")
    probe.step(f"a decode step for all of them takes at most {1e3 * STEP_LIMIT:g} ms")
    probe.true(seconds <= STEP_LIMIT, f"it takes {1e3 * seconds:.1f} ms")
    probe.step("no choice with fewer devices does it")
    probe.true(tp == fewest(), f"{tp} devices keep both promises, and so do {fewest()} of another kind")


#: Exercise 11.4: factors on the true peaks, and what a diagnosis must be called.
MISTYPED: tuple[tuple[str, dict[str, float], str], ...] = (
    ("h100", {}, "nothing"),
    ("h100", {"peak": 2.0}, "peak"),
    ("a100", {"bandwidth": 0.5}, "bandwidth"),
    ("a100", {"peak": 2.0}, "peak"),
    ("a40", {"bandwidth": 1.6}, "bandwidth"),
    ("a40", {"peak": 0.5}, "peak"),
    ("h100", {"bandwidth": 0.6}, "bandwidth"),
    ("a40", {}, "nothing"),
    ("a100", {}, "nothing"),
)


def diagnose(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    """A solution of 11.4."""
    if abs(told[min(told)] / measured[min(told)] - 1) > 0.2:
        return "bandwidth"
    if abs(told[max(told)] / measured[max(told)] - 1) > 0.2:
        return "peak"
    return "nothing"


def _exchanged(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    return {"bandwidth": "peak", "peak": "bandwidth", "nothing": "nothing"}[diagnose(measured, told)]


def _too_cheap_only(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    if told[min(told)] < 0.8 * measured[min(told)]:
        return "bandwidth"
    return "peak" if told[max(told)] < 0.8 * measured[max(told)] else "nothing"


def _by_milliseconds(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    worst = max(told, key=lambda tokens: abs(told[tokens] - measured[tokens]))
    if abs(told[worst] - measured[worst]) < 5:
        return "nothing"
    return "peak" if worst > 256 else "bandwidth"


def _by_mean(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    mean = sum(abs(told[n] / measured[n] - 1) for n in told) / len(told)
    return "peak" if mean > 0.15 else "nothing"


def _exact(measured: Mapping[int, float], told: Mapping[int, float]) -> str:
    if abs(told[min(told)] / measured[min(told)] - 1) > 0.001:
        return "bandwidth"
    return "peak" if abs(told[max(told)] / measured[max(told)] - 1) > 0.001 else "nothing"


@exercise(
    "11.4",
    "Break it: a number in the table is wrong",
    hints=(
        "Where does bandwidth alone decide, and where do operations? Look at the smallest and at the largest step.",
        "Compare relative errors. The right table is a few percent off as well; a mistyped number is far off.",
        "error = told[n] / measured[n] - 1; over 20 % at min(told): bandwidth, else at max(told): peak.",
    ),
    solution=lambda: diagnose,
    wrong={
        "exchanged": lambda: _exchanged,
        "only prices that are too low": lambda: _too_cheap_only,
        "largest error in milliseconds": lambda: _by_milliseconds,
        "mean error": lambda: _by_mean,
        "allows no error at all": lambda: _exact,
        "always the peak": lambda: lambda measured, told: "peak",
    },
)
def mistyped(answer: Any, probe: Probe) -> None:
    """answer(measured, told) -> "bandwidth", "peak" or "nothing"; both map tokens to milliseconds."""
    probe.step("it is a function")
    probe.function(answer, "diagnose")
    for gpu, factors, want in MISTYPED:
        what = " and ".join(f"{name} × {factor:g}" for name, factor in factors.items()) or "the right table"
        probe.step(f"{gpu.upper()}, {what}: {want}")
        probe.equal(answer(published(gpu), priced(gpu, **factors)), want, "the diagnosis")
