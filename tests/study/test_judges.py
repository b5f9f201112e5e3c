"""Verdicts on tables made by hand: claims that hold, and claims that do not."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import pytest
from study.catalog import EXPERIMENTS
from study.experiment import Verdict
from study.summary import judged

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
SIX = ("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1")


def table(columns: str, rows: Iterable[tuple[object, ...]]) -> pd.DataFrame:
    """Rows with the columns that are named, and with the spread and the note that every row has."""
    frame = pd.DataFrame(list(rows), columns=columns.split())
    for name in ("low", "high", "note"):
        frame[name] = None
    frame["point"] = "p"
    return frame


def verdict(name: str, frame: pd.DataFrame) -> Verdict:
    return judged(BY_NAME[name], frame)


def both_ways(case: tuple[object, ...], speedup: float, quantity: str = "latency_ms") -> list[tuple[object, ...]]:
    """Rows of a case, eager and compiled, with that speedup."""
    return [(*case, "eager", quantity, speedup), (*case, "compiled", quantity, 1.0)]


def test_names_are_unique_and_claims_are_sentences():
    assert len(BY_NAME) == len(EXPERIMENTS) == 21
    assert all(experiment.claim.endswith(".") and experiment.source for experiment in EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_no_rows_are_not_judged(experiment):
    frame = table("quantity value", [])
    assert judged(experiment, frame).holds is None


@pytest.mark.parametrize(("compiled_ms", "holds"), [(2.1, True), (1.0, False)])
def test_matmul(compiled_ms: float, holds: bool):
    rows = [
        ("cpu", size, way, "latency_ms", 2.0 if way == "eager" else compiled_ms)
        for size in (128, 256)
        for way in ("eager", "default")
    ]
    found = verdict("matmul", table("place size way quantity value", rows))
    assert found.holds is holds
    assert f"compiled {2.0 / compiled_ms:.2f} times as fast as eager on cpu" in found.measured


@pytest.mark.parametrize(("mode_ms", "holds"), [(2.05, True), (1.0, False)])
def test_matmul_compares_the_modes(mode_ms: float, holds: bool):
    times = {"eager": 2.0, "default": 2.0, "reduce-overhead": mode_ms}
    rows = [("cuda", 128, way, "latency_ms", ms) for way, ms in times.items()]
    found = verdict("matmul", table("place size way quantity value", rows))
    assert found.holds is holds
    assert f"reduce-overhead {2 / mode_ms:.2f} times as fast as default" in found.measured


def test_matmul_names_the_size_up_to_which_the_cpu_is_faster():
    times = {("cpu", 128): 1.0, ("cuda", 128): 2.0, ("cpu", 256): 8.0, ("cuda", 256): 2.0}
    rows = [(*case, way, "latency_ms", ms) for case, ms in times.items() for way in ("eager", "default")]
    assert (
        "the CPU is faster up to size 128" in verdict("matmul", table("place size way quantity value", rows)).measured
    )


@pytest.mark.parametrize(
    ("gains", "holds"), [((0.9, 0.5, 0.4), True), ((0.5, 0.9, 0.4), False), ((1.1, 0.5, 0.4), False)]
)
def test_conv_ablation(gains: tuple[float, ...], holds: bool):
    rows = [row for kernel, gain in zip((1, 3, 5), gains, strict=True) for row in both_ways((kernel, 1, 1), gain)]
    assert verdict("conv-ablation", table("kernel stride padding way quantity value", rows)).holds is holds


@pytest.mark.parametrize(("alone", "inside", "holds"), [(0.5, 1.5, True), (0.5, 0.9, False), (1.2, 1.5, False)])
def test_conv_in_model(alone: float, inside: float, holds: bool):
    rows = [*both_ways(("c", 3, "alone"), alone), *both_ways(("c", 3, "inside"), inside, "device_ms")]
    assert verdict("conv-in-model", table("layer kernel where way quantity value", rows)).holds is holds


@pytest.mark.parametrize(("gains", "holds"), [((0.4, 0.97), True), ((0.97, 0.94), False), ((0.4, 1.3), False)])
def test_conv_blocks(gains: tuple[float, float], holds: bool):
    rows = [row for length, gain in zip((1, 32), gains, strict=True) for row in both_ways(("in series", length), gain)]
    assert verdict("conv-blocks", table("kind length way quantity value", rows)).holds is holds


@pytest.mark.parametrize(("alexnet", "resnet", "holds"), [(0.9, 1.6, True), (1.2, 1.6, False), (0.9, 1.1, False)])
def test_end_to_end(alexnet: float, resnet: float, holds: bool):
    gains = dict(zip(SIX, (alexnet, 1.0, 1.4, 1.6, resnet, 1.05), strict=True))
    rows = [row for model, gain in gains.items() for row in both_ways((model, 1), gain)]
    assert verdict("end-to-end", table("model batch way quantity value", rows)).holds is holds


def test_some_of_the_models_are_not_judged():
    assert verdict("end-to-end", table("model batch way quantity value", both_ways(("alexnet", 1), 2.0))).holds is None


@pytest.mark.parametrize(("profiled", "timed", "holds"), [(2.0, 1.05, True), (1.1, 1.05, False), (2.0, 1.3, False)])
def test_timer_validation(profiled: float, timed: float, holds: bool):
    times = {("pure", False): 1.0, ("pure", True): profiled, ("sync", False): 1.0, ("timed", False): timed}
    times[("timed+sync", False)] = 1.4
    rows = [("m", "eager", code, "end to end", on, "time_ms", ms) for (code, on), ms in times.items()]
    assert verdict("timer-validation", table("model way code method profiled quantity value", rows)).holds is holds


@pytest.mark.parametrize(("second", "holds"), [(0.5, True), (2.0, False)])
def test_layer_times(second: float, holds: bool):
    times = {("a", "eager"): 1.0, ("a", "default"): 0.5, ("b", "eager"): second, ("b", "default"): 1.0}
    rows = [("m", "cpu", way, layer, "time_us", us) for (layer, way), us in times.items()]
    found = verdict("layer-times", table("model place way layer quantity value", rows))
    assert found.holds is holds
    assert f"m {50 if holds else 100}%" in found.measured


@pytest.mark.parametrize(("mode_us", "holds"), [(1.1, True), (3.0, False)])
def test_layer_times_compare_the_modes(mode_us: float, holds: bool):
    times = {("a", "eager"): 1.0, ("a", "default"): 0.5, ("b", "eager"): 0.4, ("b", "default"): 0.5}
    times |= {(layer, "max-autotune"): mode_us / 2 for layer in "ab"}
    rows = [("m", "cpu", way, layer, "time_us", us) for (layer, way), us in times.items()]
    found = verdict("layer-times", table("model place way layer quantity value", rows))
    assert found.holds is holds
    assert f"max-autotune takes {mode_us:.2f} times as long" in found.measured


@pytest.mark.parametrize(("custom_ms", "holds"), [(2.0, True), (0.5, False)])
def test_oracles(custom_ms: float, holds: bool):
    sums = {"all eager": 12.0, "all compiled": 10.5, "theoretical": 10.0}
    rows = [("m", "layer timing", oracle, None, "sum_us", us) for oracle, us in sums.items()]
    rows += [("m", "layer timing", None, "custom", "latency_ms", custom_ms)]
    rows += [("m", "layer timing", None, "compiled", "latency_ms", 1.0)]
    found = verdict("oracles", table("model method oracle applied quantity value", rows))
    assert found.holds is holds
    assert "m 1.050" in found.measured


@pytest.mark.parametrize(("held_out", "holds"), [(0.96, True), (0.4, False)])
def test_speedup_network(held_out: float, holds: bool):
    rows = []
    for target in ("speedup", "time"):
        for split, share in (("random rows", 0.97), ("held-out shapes", held_out)):
            rows += [(target, split, fit, "within_5_share", share) for fit in ("network", "constant")]
            rows += [(target, split, "network without position", "within_5_share", share - 0.02)]
    found = verdict("speedup-network", table("target split fit quantity value", rows))
    assert found.holds is holds
    assert "position adds +2.0 points" in found.measured


@pytest.mark.parametrize(("gains", "holds"), [((3.0, 1.2), True), ((0.9, 0.8), False), ((1.2, 3.0), False)])
def test_abstraction_levels(gains: tuple[float, float], holds: bool):
    rows = []
    for batch, gain in zip((1, 256), gains, strict=True):
        rows += [("eager", batch, 64, "latency_ms", gain), ("TorchScript", batch, 64, "latency_ms", 1.0)]
        rows += [("TorchScript", batch, 64, "output_error", 1e-6)]
        rows += [("eager", batch, 64, "peak_mb", 100.0), ("TorchScript", batch, 64, "peak_mb", 80.0)]
    found = verdict("abstraction-levels", table("level batch size quantity value", rows))
    assert found.holds is holds
    assert "outputs differ by at most 1.0e-06" in found.measured
    assert "TorchScript needs 0.80 times the memory" in found.measured


@pytest.mark.parametrize(("calls", "holds"), [(1, True), (9, False)])
def test_abstraction_calls(calls: int, holds: bool):
    rows = [("eager", "python_calls", 3), ("eager", "operator_calls", 5), ("Inductor", "operator_calls", calls)]
    found = verdict("abstraction-calls", table("level quantity value", rows))
    assert found.holds is holds
    assert "eager 8" in found.measured


@pytest.mark.parametrize(("second", "holds"), [(1.1, True), (0.9, False)])
def test_twelve_models(second: float, holds: bool):
    rows = [*both_ways(("a",), 2.0), *both_ways(("b",), second), *both_ways(("a",), 1.0, "predicted_ms")]
    rows += both_ways(("a",), 1.8, "calibrated_ms")
    found = verdict("twelve-models", table("model way quantity value", rows))
    assert found.holds is holds
    assert "predicted for the profile's host are 50% off on average" in found.measured
    assert "predicted for this host are 10% off on average" in found.measured


@pytest.mark.parametrize(("graphs", "holds"), [(1.0, True), (3.0, False)])
def test_twelve_graphs(graphs: float, holds: bool):
    rows = [("a", kind, value) for kind, value in (("graphs", 1.0), ("predicted_graphs", 1.0), ("guards", 7.0))]
    rows += [("b", kind, value) for kind, value in (("graphs", graphs), ("predicted_graphs", 1.0), ("guards", 9.0))]
    found = verdict("twelve-graphs", table("model quantity value", rows))
    assert found.holds is holds
    assert f"7 to 9 guards, graphs predicted for {2 if holds else 1} of 2" in found.measured


@pytest.mark.parametrize(("second_call", "holds"), [(0, True), (1, False)])
def test_toy_example(second_call: int, holds: bool):
    rows = [
        ("graph break", None, kind, count) for kind, count in (("graphs", 2), ("breaks", 1), ("predicted_graphs", 2))
    ]
    rows += [("retracing", n, "compiled_graphs", count) for n, count in ((2, 1), (3, second_call), (6, 0), (-3, 1))]
    found = verdict("toy-example", table("example call quantity value", rows))
    assert found.holds is holds
    assert f"3: {second_call}" in found.measured


@pytest.mark.parametrize(("traced", "holds"), [(0.0, True), (1.0, False)])
def test_captures(traced: float, holds: bool):
    rows = [("fx", "captured", 0.0)]
    for way, right in (("jit.script", 1.0), ("jit.trace", traced), ("Dynamo", 1.0)):
        rows += [(way, "captured", 1.0), (way, "right_in_other_branch", right)]
    found = verdict("captures", table("way quantity value", rows))
    assert found.holds is holds
    assert "fx fails" in found.measured


@pytest.mark.parametrize(("saved", "holds"), [(60.0, True), (40.0, False)])
def test_training_memory(saved: float, holds: bool):
    figures = {"saved_mib": saved, "peak_mib": 100.0, "predicted_peak_mib": 101.0}
    rows = [("m", batch, kind, value) for batch in (1, 2) for kind, value in figures.items()]
    found = verdict("training-memory", table("model batch quantity value", rows))
    assert found.holds is holds
    assert f"m, batch 2: {saved:.0f}% of the peak, predicted peak +1.0%" in found.measured


@pytest.mark.parametrize(("last", "holds"), [(30.0, True), (5.0, False)])
def test_training_throughput(last: float, holds: bool):
    rows = [("m", batch, "images_per_s", value) for batch, value in ((1, 10.0), (2, 40.0), (4, last))]
    found = verdict("training-throughput", table("model batch quantity value", rows))
    assert found.holds is holds
    assert "best at 2" in found.measured


@pytest.mark.parametrize(("after", "single", "holds"), [(8.0, 4.0, True), (12.0, 4.0, False), (8.0, 3.0, False)])
def test_tanh_example(after: float, single: float, holds: bool):
    shared = {"saved_kb": 16.0, "saved_with_recomputation_kb": after, "formula_saved_kb": 16.0}
    shared |= {"formula_with_recomputation_kb": 8.0, "measured_saved_kb": 16.0, "measured_with_recomputation_kb": 8.0}
    rows = [("shared", 4, kind, value) for kind, value in shared.items()]
    rows += [("single", 4, "saved_kb", 4.0), ("single", 4, "saved_with_recomputation_kb", single)]
    assert verdict("tanh-example", table("example T quantity value", rows)).holds is holds


@pytest.mark.parametrize(("peak", "step", "holds"), [(70.0, 1.2, True), (101.0, 1.2, False), (70.0, 2.0, False)])
def test_recomputation(peak: float, step: float, holds: bool):
    rows = [("m", "plain", "peak_mib", 100.0), ("m", "recomputed", "peak_mib", peak)]
    rows += [
        ("m", "plain", "step_ms", 1.0),
        ("m", "recomputed", "step_ms", step),
        ("m", None, "predicted_added_ms", 0.1),
    ]
    assert verdict("recomputation", table("model way quantity value", rows)).holds is holds


@pytest.mark.parametrize(("factor", "holds"), [(3.0, True), (0.5, False)])
def test_split_linear(factor: float, holds: bool):
    rows = [("l", 1, 1, "unsplit", "latency_us", 10.0)]
    for pieces in (2, 64, 128):
        rows += [("l", 1, pieces, how, "latency_us", 10.0 * factor) for how in ("copied", "in place")]
    found = verdict("split-linear", table("layer workers pieces result quantity value", rows))
    assert found.holds is holds
    assert f"64 pieces {factor:.2f} times the time" in found.measured


@pytest.mark.parametrize(("equal", "copies", "holds"), [(1.0, 1.0, True), (0.0, 1.0, False), (1.0, 0.0, False)])
def test_streamit_programs(equal: float, copies: float, holds: bool):
    rows = []
    for name, more in (("sequence", 0.0), ("fused", copies)):
        figures = {"equal": equal, "replicated_operators": more, "carried_tensors": 2 * more}
        rows += [(name, kind, value) for kind, value in figures.items()]
    assert verdict("streamit-programs", table("example quantity value", rows)).holds is holds
