"""The price list against measured profiles: the bars, and that what is stored is what this code gives."""

from __future__ import annotations

import json

import pytest
from shared_data import shared

from lab.errors import BadWorkload
from lab.simulation import fit, profiles
from lab.simulation.accuracy import (
    BARS,
    FITTED_ON,
    GPUS,
    HELD_OUT,
    profile_path,
    refitted,
    stored,
    table,
    update_hardware,
)
from lab.simulation.costs import Costs
from lab.simulation.hardware import TABLE, device
from lab.simulation.published import distserve
from lab.simulation.shapes import model_shape

STORED = stored()


# -- against the profiles (skipped where they are absent) ------------------------------------------------------
@pytest.mark.parametrize("gpu", GPUS)
def test_fitted_errors_are_below_their_bar_and_as_stored(gpu: str) -> None:
    profile = profiles.layer_profile(profile_path(shared("profiles"), gpu, FITTED_ON), 1)
    assert len(profile) == 259
    for name in GPUS[gpu][:1]:
        found = fit.summary(fit.layer_errors(model_shape(FITTED_ON), device(name), profile))
        assert found["mean"] <= BARS["fitted"] == 0.06
        assert found == pytest.approx(STORED["fitted"][gpu]["error"])


@pytest.mark.parametrize("kept", STORED["held_out"], ids=lambda row: f"{row['gpu']}-{row['model']}-tp{row['tp']}")
def test_held_out_errors_are_below_their_bar_and_as_stored(kept) -> None:
    model, tp = kept["model"], kept["tp"]
    profile = profiles.layer_profile(profile_path(shared("profiles"), kept["gpu"], model), tp)
    errors = fit.layer_errors(model_shape(model), device(GPUS[kept["gpu"]][0]), profile, tp)
    assert fit.summary(errors)["mean"] <= BARS["held_out"] == 0.12
    assert fit.summary(errors) == pytest.approx(kept["error"])


def test_a_new_fit_finds_the_stored_parameters() -> None:
    profile = profiles.layer_profile(profile_path(shared("profiles"), "a40", FITTED_ON), 1)
    found = fit.fit_layers(model_shape(FITTED_ON), device("a40"), profile)
    assert {key: getattr(found, key) for key in fit.PARAMETERS} == STORED["fitted"]["a40"]["fit"]


def test_profiles_were_taken_with_the_shapes_of_our_table() -> None:
    for name in ("llama-2-7b", "llama-3-8b", "llama-3-70b"):
        sizes = profiles.profile_shape(profile_path(shared("profiles"), "a100", name))
        assert sizes == {key: getattr(model_shape(name), key) for key in sizes}


def test_a_known_step_of_the_profile() -> None:
    # 32 layers of Llama-2-7B on one A100: 9.28 ms for one token, 133 ms for 2,048 (medians, without the embedding)
    profile = profiles.layer_profile(profile_path(shared("profiles"), "a100", "llama-2-7b"), 1)
    assert 32e3 * profile[1] == pytest.approx(9.28, abs=0.01)
    assert 32e3 * profile[2048] == pytest.approx(133, abs=1)


@pytest.mark.parametrize("gpu, per_direction", [("a100", 300e9), ("h100", 450e9)])
def test_all_reduce_sizes_are_bytes(gpu: str, per_direction: float) -> None:
    times = profiles.all_reduce_profile(shared("profiles") / f"net_{gpu}_dgx_all_reduce.csv", 8)
    (small, fast), (large, slow) = sorted(times.items())[len(times) // 2], max(times.items())
    bytes_per_s = 2 * 7 / 8 * (large - small) / (slow - fast)
    assert 0.5 * per_direction < bytes_per_s < per_direction < 2 * bytes_per_s  # as fp16 elements: impossible


# -- without the profiles --------------------------------------------------------------------------------------
def test_the_mean_over_devices_is_below_its_bar() -> None:
    means = [row["error"]["mean"] for row in STORED["fitted"].values()]
    assert len(means) == 3 and STORED["fitted_mean"] == pytest.approx(sum(means) / 3)
    assert STORED["fitted_mean"] <= BARS["fitted_mean"] == 0.05
    assert max(row["error"]["mean"] for row in STORED["held_out"]) <= BARS["held_out"]
    held_out = {(row["model"], row["tp"]) for row in STORED["held_out"]}
    assert held_out == set(HELD_OUT) and {row["gpu"] for row in STORED["held_out"]} == set(GPUS)


@pytest.mark.parametrize("gpu", GPUS)
def test_stored_parameters_are_those_in_use_and_give_the_stored_times(gpu: str) -> None:
    kept, shape = STORED["fitted"][gpu], model_shape(FITTED_ON)
    for name in GPUS[gpu]:
        assert {key: getattr(device(name).fit, key) for key in fit.PARAMETERS} == kept["fit"]
        assert refitted(name, STORED) == device(name)
    costs = Costs(shape, device(GPUS[gpu][0]))
    for tokens, (measured, ours) in kept["step_ms"].items():
        assert shape.layers * 1e3 * costs.layer_seconds(int(tokens)) == pytest.approx(ours)
        assert ours == pytest.approx(measured, rel=kept["error"]["max"] + 1e-9)


def test_published_formulas_are_met_as_stored() -> None:
    ours = {(c.model, c.step): c.ours_s for c in distserve(device("a100-sxm"))}
    theirs = {(r["model"], r["step"]): r for r in STORED["cross_checks"] if r["source"] == "DistServe"}
    assert set(ours) == set(theirs)
    for key, row in theirs.items():
        assert ours[key] == pytest.approx(row["ours_s"])
        assert row["error"] == pytest.approx(row["ours_s"] / row["theirs_s"] - 1)
    # 13B prefill as DistServe's formula gives it: 72 ms for 512 tokens, 257 ms for 2,048
    assert theirs[("opt-13b on a100-sxm (simulated)", "prefill of 512")]["theirs_s"] == pytest.approx(0.072, abs=5e-4)
    assert theirs[("opt-13b on a100-sxm (simulated)", "prefill of 2048")]["theirs_s"] == pytest.approx(0.2567, abs=5e-4)


def test_the_results_print_as_a_table() -> None:
    text = table(STORED)
    assert "a100  fitted" in text and "held out" in text and "Sarathi" in text


# -- the fit itself --------------------------------------------------------------------------------------------
def test_a_fit_recovers_the_law_it_was_given() -> None:
    shape, one = model_shape("llama-2-7b"), device("a40")
    law = Costs(shape, one)
    measured = {tokens: law.layer_seconds(tokens) for tokens in (1, 8, 64, 128, 256, 512, 1024, 4096)}
    found = fit.fit_layers(shape, one, measured)
    errors = fit.relative_errors(law.layer_seconds, measured)
    assert max(errors) == 0
    assert found.mfu == pytest.approx(one.fit.mfu, rel=0.05) and found.mbu == pytest.approx(one.fit.mbu, rel=0.1)


def test_an_all_reduce_fit_recovers_latency_and_bandwidth() -> None:
    measured = {n: {size: 2e-5 + size * 2 * (n - 1) / n / 250e9 for size in (2048, 1 << 20, 1 << 26)} for n in (2, 8)}
    latency, bandwidth, error = fit.fit_all_reduce(measured)
    assert (latency, bandwidth) == (pytest.approx(2e-5, rel=0.01), pytest.approx(250e9, rel=0.01)) and error < 0.01


def test_fits_are_written_with_their_origin(tmp_path) -> None:
    copy = tmp_path / "hardware.json"
    copy.write_text(TABLE.read_text(encoding="utf-8"), encoding="utf-8")
    changed = json.loads(json.dumps(STORED))
    changed["fitted"]["h100"]["fit"]["mfu"] = 0.123
    update_hardware(changed, copy)
    rows = json.loads(copy.read_text(encoding="utf-8"))["devices"]
    assert rows["h100-sxm"]["fit"]["mfu"] == rows["h200-sxm"]["fit"]["mfu"] == 0.123
    assert "borrowed" in rows["h200-sxm"]["fit"]["source"] and "borrowed" not in rows["h100-sxm"]["fit"]["source"]
    assert rows["l4"] == json.loads(TABLE.read_text(encoding="utf-8"))["devices"]["l4"]


def test_files_that_are_no_profiles(tmp_path) -> None:
    with pytest.raises(BadWorkload, match="cannot be read as CSV"):
        profiles.layer_profile(tmp_path / "absent.csv", 1)
    path = tmp_path / "p.csv"
    path.write_text("num_tokens,num_tensor_parallel_workers\n", encoding="utf-8")
    with pytest.raises(BadWorkload, match="holds no rows"):
        profiles.layer_profile(path, 1)
    path.write_text("num_tokens,num_tensor_parallel_workers\n4,1\n", encoding="utf-8")
    with pytest.raises(BadWorkload, match="time_stats.input_layernorm.median': None is no number"):
        profiles.layer_profile(path, 1)
    with pytest.raises(BadWorkload, match="no row for 2 tensor-parallel workers"):
        profiles.layer_profile(path, 2)


def test_the_command_prints_and_keeps_its_results(tmp_path, capsys) -> None:
    folder, kept = shared("profiles"), tmp_path / "deep" / "out.json"
    assert fit.main(["--profiles", str(folder), "--json", str(kept)]) == 0
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert [row["ours_s"] for row in found["cross_checks"]] == pytest.approx(
        [r["ours_s"] for r in STORED["cross_checks"]]
    )
    assert {gpu: row["fit"] for gpu, row in found["fitted"].items()} == {
        g: r["fit"] for g, r in STORED["fitted"].items()
    }
    assert "mean over devices" in capsys.readouterr().out
