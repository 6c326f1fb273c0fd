"""How near the price list comes to measured profiles: fitted on one model, tried on others, kept as dated results."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any

from lab.simulation.costs import Costs
from lab.simulation.fit import PARAMETERS, fit_all_reduce, fit_layers, layer_errors, summary
from lab.simulation.hardware import TABLE, Device, device
from lab.simulation.profiles import all_reduce_profile, layer_profile
from lab.simulation.published import distserve, sarathi
from lab.simulation.shapes import model_shape

RESULTS = TABLE.parent / "results" / "simulation_accuracy.json"
ORIGIN = "microsoft/vidur @ 7d47513 (MIT), data/profiling; microsoft/sarathi-serve @ ceaa066 (Apache-2.0)"
FITTED_ON = "llama-2-7b"
FILE_NAMES = {
    "llama-2-7b": "Llama-2-7b-hf",
    "llama-2-70b": "Llama-2-70b-hf",
    "llama-3-8b": "Meta-Llama-3-8B",
    "llama-3-70b": "Meta-Llama-3-70B",
}
#: Profiled GPU: the device of our table, and those whose shares of the peaks are taken from it.
GPUS = {"a100": ("a100-sxm", "a100-pcie"), "h100": ("h100-sxm", "h200-sxm"), "a40": ("a40",)}
HELD_OUT = (("llama-3-8b", 1), ("llama-2-70b", 2), ("llama-2-70b", 4), ("llama-2-70b", 8)) + tuple(
    ("llama-3-70b", tp) for tp in (2, 4, 8)
)
#: Mean relative errors that must not be exceeded.
BARS = {"fitted": 0.06, "fitted_mean": 0.05, "held_out": 0.12}
SHOWN = (1, 32, 128, 256, 512, 1024, 2048, 4096)


def stored() -> dict[str, Any]:
    """The results kept in the repository, as `measure` gave them on their date."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def profile_path(folder: Path, gpu: str, model: str) -> Path:
    """Where a layer profile lies."""
    return folder / f"{gpu}_{FILE_NAMES[model]}_mlp.csv"


def measure(folder: Path) -> dict[str, Any]:
    """Fit each device on one model, try the fit on the others, and put published step times beside ours."""
    fitted, held_out = {}, []
    shape = model_shape(FITTED_ON)
    for gpu, (name, *_) in GPUS.items():
        profile = layer_profile(profile_path(folder, gpu, FITTED_ON), 1)
        fit = fit_layers(shape, device(name), profile)
        found = replace(device(name), fit=fit)
        costs = Costs(shape, found)
        fitted[gpu] = {
            "fit": {key: getattr(fit, key) for key in PARAMETERS},
            "error": summary(layer_errors(shape, found, profile)),
            "step_ms": {
                n: [shape.layers * 1e3 * profile[n], shape.layers * 1e3 * costs.layer_seconds(n)] for n in SHOWN
            },
        }
        for model, tp in HELD_OUT:
            if (path := profile_path(folder, gpu, model)).exists():
                errors = layer_errors(model_shape(model), found, layer_profile(path, tp), tp)
                held_out.append({"gpu": gpu, "model": model, "tp": tp, "error": summary(errors)})
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "origin": ORIGIN,
        "files": {path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(folder.rglob("*.csv"))},
        "fitted_on": FITTED_ON,
        "bars": BARS,
        "fitted": fitted,
        "fitted_mean": mean(row["error"]["mean"] for row in fitted.values()),
        "held_out": held_out,
        "all_reduce": {gpu: _all_reduce(folder, gpu) for gpu in ("a100", "h100")},
    }
    sxm, pcie = (refitted(name, results) for name in GPUS["a100"])
    results["cross_checks"] = [check._asdict() for check in (*distserve(sxm), *sarathi(folder / "sarathi", pcie))]
    return results


def refitted(name: str, results: dict[str, Any]) -> Device:
    """A device of the table with what `results` found for it."""
    gpu = next(gpu for gpu, names in GPUS.items() if name in names)
    one = device(name)
    links = one.links
    if gpu in results["all_reduce"]:
        found = {key: results["all_reduce"][gpu][key] for key in ("latency", "bandwidth")}
        links = (replace(links[0], **found), *links[1:])
    return replace(one, fit=replace(one.fit, **results["fitted"][gpu]["fit"]), links=links)


def _all_reduce(folder: Path, gpu: str) -> dict[str, float]:
    path = folder / f"net_{gpu}_dgx_all_reduce.csv"
    latency, bandwidth, error = fit_all_reduce({workers: all_reduce_profile(path, workers) for workers in (2, 4, 8)})
    return {"latency": latency, "bandwidth": bandwidth, "mean_error": error}


def table(results: dict[str, Any]) -> str:
    """The results as lines of text."""
    lines = [f"linear layers, fitted on {results['fitted_on']}, {results['date']} (mean and p95 relative error)"]
    for gpu, row in results["fitted"].items():
        parameters = ", ".join(f"{key} {value:.4g}" for key, value in row["fit"].items())
        lines.append(f"  {gpu:5} fitted             {_percent(row['error'])}   {parameters}")
    lines.append(f"  mean over devices        {100 * results['fitted_mean']:5.2f} %")
    for row in results["held_out"]:
        lines.append(f"  {row['gpu']:5} {row['model']:12} tp{row['tp']}   {_percent(row['error'])}   held out")
    for gpu, row in results["all_reduce"].items():
        lines.append(
            f"  {gpu:5} all-reduce         {100 * row['mean_error']:5.2f} %             latency "
            f"{1e6 * row['latency']:.0f} µs, {row['bandwidth'] / 1e9:.0f} GB/s"
        )
    lines.append("published step times beside ours (no bars: other engines, other overheads)")
    for row in results["cross_checks"]:
        lines.append(
            f"  {row['source']:9} {row['model']:42} {row['step']:19} {1e3 * row['theirs_s']:8.1f} ms "
            f"{1e3 * row['ours_s']:8.1f} ms {100 * row['error']:+5.0f} %"
        )
    return "\n".join(lines)


def _percent(error: dict[str, float]) -> str:
    return f"{100 * error['mean']:5.2f} % {100 * error['p95']:5.1f} %"


def update_hardware(results: dict[str, Any], path: Path = TABLE) -> None:
    """Write fitted shares and link constants into the device table, with where they come from."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for gpu, names in GPUS.items():
        for place, name in enumerate(names):
            row = content["devices"][name]
            origin = f"fitted on {results['fitted_on']}, Vidur's {gpu} profile, {results['date']}"
            borrowed = "; borrowed, not validated here" if place else ""
            row["fit"] |= results["fitted"][gpu]["fit"] | {"source": f"{origin}{borrowed}. {ATTENTION}"}
            if gpu in results["all_reduce"]:
                fit = results["all_reduce"][gpu]
                row["links"][0] |= {key: fit[key] for key in ("latency", "bandwidth")}
                row["links"][0]["source"] = (
                    f"fitted on all-reduce times of a DGX {gpu}, 2 to 8 devices{borrowed}. {LATENCY}"
                )
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


ATTENTION = "Attention's shares and the host's overhead are assumed: no profile of ours holds them."
LATENCY = "The latency is that of single launches; captured graphs and one-shot kernels have less at small sizes."
