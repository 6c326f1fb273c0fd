"""Everything to run on a machine with an NVIDIA GPU, in under eight minutes: `python tests/benchmarks/gpu.py`.

First the tests marked `gpu`, then one table: decode steps by batch size (tokens/s, and MBU: the bytes a step must
move at least over this GPU's measured bandwidth), and prompts by length (MFU: operations over this GPU's measured
half-precision rate). Weights are random, of the shape of Llama 3 8B, or 3.2 1B where memory is small: speed does not
depend on their values. `--rehearse` walks through the script on the CPU with a toy model; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import lab  # noqa: F401  first, since it chooses how torch's threads wait

# isort: split
import torch

from lab.errors import ModelError
from lab.execution.config import ModelConfig, RopeScaling
from lab.execution.device import choose_dtype, room, seen_by_torch
from lab.execution.model import Model, load_model
from lab.execution.runner import ModelRunner
from lab.execution.tiny import TOKENIZER
from lab.execution.weights import expected_shapes, fuse
from lab.peaks import Peaks
from lab.plan import Row, StepPlan
from lab.request import Request
from lab.setup import measure

ROOT = Path(__file__).resolve().parents[2]
LLAMA3 = dict(vocab_size=128256, num_heads=32, num_kv_heads=8, rope_theta=5e5, rms_norm_eps=1e-5, max_length=8192)
SCALING = RopeScaling(8.0, 1.0, 4.0, 8192.0)
SHAPES = {  # name: (GiB of GPU memory it takes with its keys and values, its sizes)
    "8b": (36, dict(hidden_size=4096, intermediate_size=14336, num_layers=32, head_dim=128, tied=False)),
    "1b": (8, dict(hidden_size=2048, intermediate_size=8192, num_layers=16, head_dim=64, tied=True)),
}
CONTEXT = 512
BATCHES = (1, 2, 4, 8, 16, 24, 32, 64, 128)
FEW = (1, 8, 32)  # batch sizes at which the other ways are measured too
PROMPTS = (256, 512, 1024, 2048, 4096)
MINUTES = 7.0  # no new line is begun after this


@dataclass(slots=True)
class Line:
    """One measurement. `share` is MBU for decodes and MFU for prompts, None where a line could not be measured."""

    what: str
    batch: int
    tokens: int
    way: str
    ms: float | None = None
    tokens_per_s: float | None = None
    share: float | None = None
    note: str = ""

    def text(self) -> str:
        name = "MBU" if self.what == "decode" else "MFU"
        if self.ms is None:
            return f"{self.what:8}{self.batch:>6}{self.tokens:>8}  {self.way:14}  {self.note}"
        numbers = f"{self.ms:>9.2f}{self.tokens_per_s:>12,.0f}{100 * self.share:>8.1f} % {name}"
        return f"{self.what:8}{self.batch:>6}{self.tokens:>8}  {self.way:14}{numbers}"


def random_model(device: torch.device) -> Model:
    """The largest of SHAPES that fits, with random weights."""
    dtype = choose_dtype(None, device)
    name = next((name for name, (gib, _) in SHAPES.items() if room(device) > gib * 2**30), "1b")
    config = ModelConfig(**LLAMA3, **SHAPES[name][1], rope_scaling=SCALING)
    torch.manual_seed(0)
    tensors = {
        name: torch.ones(shape, device=device, dtype=dtype)
        if len(shape) == 1
        else torch.empty(shape, device=device, dtype=dtype).normal_(0, 0.02)
        for name, shape in expected_shapes(config).items()
    }
    return Model(f"random Llama 3 of {name}", config, fuse(config, tensors), TOKENIZER, (), dtype)


def measured_peaks(model: Model) -> Peaks:
    """This device's rate of multiplying in the model's own type, and its bandwidth."""
    on_gpu = model.device.type == "cuda"
    size, duration = (8192, 1.0) if on_gpu else (512, 0.05)
    a, b = (torch.rand(size, size, device=model.device).to(model.dtype) for _ in range(2))
    seconds = measure._best_seconds(lambda: torch.mm(a, b), duration, model.device.type)
    bandwidth = measure.memory_bandwidth(model.device.type, duration)
    dtype = str(model.dtype).removeprefix("torch.")
    source = f"measured here: {dtype} product of two {size} x {size} matrices; {bandwidth.how}"
    return Peaks(2 * size**3 / seconds, bandwidth.rate, source)


def timed(runner: ModelRunner, plan_of: list[StepPlan], warm: int) -> float:
    """Median seconds of the plans after the first `warm`."""
    return median([runner.run(plan).seconds for plan in plan_of][warm:])


def decode(model: Model, batch: int, way: str, peaks: Peaks, graphs: bool = True, steps: int = 25) -> Line:
    """Decode steps of `batch` requests, each with CONTEXT tokens resident (zeros, which cost as much to read)."""
    line = Line("decode", batch, batch, f"{way}{'' if graphs else ', no graphs'}")
    block = model.best_block_size
    blocks = -(-(CONTEXT + steps) // block)
    runner = ModelRunner(model, batch * blocks, block, way, graphs=graphs)
    requests = [
        Request(i, [1] * (CONTEXT + steps), block_table=list(range(i * blocks, (i + 1) * blocks))) for i in range(batch)
    ]
    plans = [StepPlan([Row(r, CONTEXT + step, 1, samples=True) for r in requests]) for step in range(steps)]
    seconds = timed(runner, plans, warm=5)
    moved = model.step_bytes(batch, batch * (CONTEXT + steps // 2))
    line.ms, line.tokens_per_s, line.share = 1e3 * seconds, batch / seconds, moved / seconds / peaks.bytes_per_s
    return line


def prefill(model: Model, tokens: int, way: str, peaks: Peaks) -> Line:
    """One prompt, whole."""
    line = Line("prompt", 1, tokens, way)
    block = model.best_block_size
    blocks = -(-tokens // block)
    runner = ModelRunner(model, blocks, block, way)
    plan = StepPlan([Row(Request(0, [1] * tokens, block_table=list(range(blocks))), 0, tokens, samples=True)])
    seconds = timed(runner, [plan] * 7, warm=2)
    line.ms, line.tokens_per_s, line.share = 1e3 * seconds, tokens / seconds, runner.flops(plan) / seconds / peaks.flops
    return line


def benchmark(model: Model, peaks: Peaks, deadline: float) -> list[Line]:
    """All lines, each printed as soon as it is known."""
    best = ModelRunner(model, 1, model.best_block_size, graphs=False).packed.name
    on_gpu = model.device.type == "cuda"
    batches, few, prompts = (BATCHES, FEW, PROMPTS) if on_gpu else (BATCHES[:3], FEW[:1], PROMPTS[:1])
    jobs = [(decode, dict(batch=batch, way=best)) for batch in batches]
    jobs += [(prefill, dict(tokens=tokens, way=best)) for tokens in prompts]
    if on_gpu:
        jobs += [(decode, dict(batch=batch, way=best, graphs=False)) for batch in few]
    if best != "sdpa":
        jobs += [(decode, dict(batch=batch, way="sdpa")) for batch in few]
        jobs += [(prefill, dict(tokens=tokens, way="sdpa")) for tokens in prompts[::2]]
    lines = []
    for measure_line, options in jobs:
        if time.monotonic() > deadline:
            print("the time is up: the other lines were left out")
            break
        try:
            line = measure_line(model, peaks=peaks, **options)
        except ModelError as error:
            kind = "decode" if measure_line is decode else "prompt"
            line = Line(kind, options.get("batch", 1), options.get("tokens", 0), options["way"], note=str(error))
        lines.append(line)
        print(line.text(), flush=True)
    return lines


def run_tests() -> dict[str, object]:
    """The tests marked gpu; what pytest's last line says, and its exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/execution", "--timeout=120"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    if done.returncode:
        print(done.stdout[-4000:])
    print(f"tests marked gpu: {lines[-1]}", flush=True)
    return {"passed": done.returncode == 0, "summary": lines[-1]}


def flash_attn_version() -> str:
    try:
        return metadata.version("flash-attn")
    except metadata.PackageNotFoundError:
        return "missing"


def main(argv: list[str] | None = None) -> int:
    """Returns 0, 1 where a test failed, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--no-tests", action="store_true", help="only the table")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU with a toy model; numbers mean nothing")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available() and not options.rehearse:
        print(f"There is no GPU here, so nothing was run: {seen_by_torch()}.", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * MINUTES
    tests = {"passed": True, "summary": "left out"} if options.no_tests else run_tests()
    model = load_model("tiny") if options.rehearse else random_model(torch.device("cuda", 0))
    peaks = measured_peaks(model)
    found = {
        "device": "CPU, a rehearsal" if options.rehearse else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "flash_attn": flash_attn_version(),
        "model": model.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "context": CONTEXT,
        "peak_flops": peaks.flops,
        "peak_bytes_per_s": peaks.bytes_per_s,
        "peak_source": peaks.source,
        "tests": tests,
    }
    for name in ("device", "torch", "flash_attn", "model", "dtype", "peak_source"):
        print(f"{name:12} {found[name]}")
    print(f"{'peaks':12} {peaks.flops / 1e12:.1f} TFLOP/s, {peaks.bytes_per_s / 1e9:.0f} GB/s\n")
    print(f"{'step':8}{'batch':>6}{'tokens':>8}  {'attention':14}{'ms':>9}{'tokens/s':>12}   of peak")
    found["lines"] = [asdict(line) for line in benchmark(model, peaks, deadline)]
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if tests["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
