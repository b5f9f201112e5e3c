"""Results built by hand, one of each kind of report, whose texts may be given another name each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.comparison.compare import Comparison, compare_reports
from costmodel.comparison.comparison_document import render_comparison
from costmodel.ir import Ref
from costmodel.measurement.validation_report import LayerResult, ModeResult, Validation, render_validation
from costmodel.memory.alternatives import Alternative
from costmodel.memory.checkpoint_regions import CheckpointedModules
from costmodel.memory.recompute import Recomputation
from costmodel.memory.report import Inference, MemoryReport, SavedActivations, Training, render_memory
from costmodel.planning.plan import Plan, Region
from costmodel.planning.plan_report import render_plan
from costmodel.report import GraphBreak, Graphs, LayerPrediction, ModePrediction, Reason, Report, Unsupported, render
from costmodel.report.figures import MEBIBYTE

Name = Callable[[str], str]


def as_it_is(name: str) -> str:
    return name


def report(name: Name = as_it_is) -> Report:
    eager = ModePrediction(latency_ms=6.0, low_ms=5.5, high_ms=6.5, host_ms=5.9, device_ms=2.0)
    cold = {"compile_s_low": 21.0, "compile_s_high": 43.0}
    warm = {"compile_warm_s": 2.1, "compile_warm_s_low": 1.5, "compile_warm_s_high": 2.9}
    calls = {"break_even_low": 9800, "break_even_high": 23000}
    default = ModePrediction(4.0, 3.8, 4.2, 3.9, 1.5, 1.5, 1.4, 1.6, 30.0, 15000, **cold, **warm, **calls)
    graphs = ModePrediction(2.0, 1.8, 2.2, 0.1, 1.9, 3.0, 2.75, 3.25, 32.5, 8100, **cold, **warm, break_even_low=5500)
    convolution = LayerPrediction(
        name("features.0"), "conv2d", (name("conv2d"), "relu"), 0.0, 20.0, 10.0, 2.0, 1.5, 2.5, "extern", True
    )
    strange = LayerPrediction(name("head"), name("my_op"), (), 1.0, 8.0, 10.0, 0.8, None, None, name("triton"), False)
    return Report(
        model=name("tiny"),
        hardware=name("some-gpu"),
        batch_size=2,
        input_shape=(2, 3, 8, 8),
        precision="float32",
        layout="nchw",
        modes={"eager": eager, "default": default, "reduce-overhead": graphs},
        best_mode="reduce-overhead",
        verdict="compile",
        layers=(convolution, strange),
        unsupported=(Unsupported(name("my::op"), name("head.act")),),
        warnings=(name("the host was not calibrated"),),
        explanation=(
            Reason("mode", name("default"), "host-bound: 3.90 ms to 1.50 ms"),
            Reason("layer", name("head"), name("8.0 us to 10.0 us: no fusion")),
        ),
        host=name("some-host"),
        host_speed=0.5,
        host_calibrated=True,
    )


def with_breaks(name: Name = as_it_is) -> Report:
    """A report with graph breaks, one graph of which is no CUDA graph."""
    breaks = (
        GraphBreak(name("net.py:12"), name("print()")),
        GraphBreak("net.py:20", "a branch on the values of a tensor"),
    )
    skipped = (name("head writes into x in place"),)
    return replace(report(name), graphs=Graphs(3, True, breaks, skipped))


def given_up(name: Name = as_it_is) -> Report:
    """A report of a model that Dynamo gives up as a whole."""
    modes = dict.fromkeys(("eager", "default", "reduce-overhead"), report().modes["eager"])
    graphs = Graphs(0, True, (GraphBreak(name("net.py:12"), name("print()")),))
    return replace(report(name), modes=modes, best_mode="eager", verdict="leave", graphs=graphs)


def failing(name: Name = as_it_is) -> Report:
    """A report of a model that torch.compile raises an error of."""
    modes = {"eager": report().modes["eager"]}
    graphs = Graphs(0, True, error=f"TypeError: {name('unhashable')} type")
    return replace(report(name), modes=modes, best_mode="eager", verdict="leave", graphs=graphs)


def plan(name: Name = as_it_is) -> Plan:
    return Plan(
        model=name("tiny"),
        graph="0123456789abcdef",
        hardware=name("some-gpu"),
        strategy="exact",
        rewrites=("merge_sibling_convs:0,3", "fold_bias"),
        launch="graph",
        regions=(
            Region("cudnn", ("0", "1"), (name("features.0"), name("features.1")), 12.5, name("fused in cuDNN"), 0),
            Region("inductor", (name("2"),), (), 7.25, "fewest bytes", 1),
        ),
        latency_ms={"plan": 1.0, "eager": 6.0, "default": 4.0, "reduce-overhead": 2.0},
        build_s=31.0,
        torch="2.13.0",
        search=True,
        memory_bytes=3 * 2**20,
        graphs=1,
        roofline_ms=0.4,
    )


def validation(name: Name = as_it_is) -> Validation:
    return Validation(
        model=name("tiny"),
        hardware=name("some-gpu"),
        device=name("Some GPU 80GB"),
        input_shape=(2, 3, 8, 8),
        precision="float16",
        modes={
            "eager": ModeResult(predicted_ms=6.0, measured_ms=5.0, low_ms=4.9, high_ms=5.1, peak_bytes=100 * MEBIBYTE),
            "default": ModeResult(4.0, 5.0, 4.5, 5.5, 1.25, 1.125, 1.5, 30.0, 90 * MEBIBYTE, 2e-4),
            "plan": ModeResult(1.0, None, note=name("RuntimeError: out of memory")),
        },
        replaced=(name("features.3"),),
        host_speed=0.5,
        layers=(LayerResult(name("features.0"), name("conv2d"), 20.0, 25.0), LayerResult("head", "my_op", None, 4.0)),
        compiled_layers=(LayerResult(name("features.0"), "conv2d", 10.0, 8.0),),
        regions=(LayerResult(name("features.0 ... features.1"), "cudnn", 12.5, None),),
    )


def memory(name: Name = as_it_is) -> MemoryReport:
    inference = Inference(30 * MEBIBYTE, name("features.0"), 8 * MEBIBYTE, 2 * MEBIBYTE, 5 * MEBIBYTE, 22 * MEBIBYTE)
    training = Training(
        peak_bytes=95 * MEBIBYTE,
        peak_at=name("head"),
        workspace_bytes=8 * MEBIBYTE,
        convolution_allowance_bytes=6 * MEBIBYTE,
        gradient_bytes=11 * MEBIBYTE,
        optimizer="adam",
        optimizer_bytes=23 * MEBIBYTE,
        between_bytes=70 * MEBIBYTE,
        forward_us=1500.0,
        feature_maps=(SavedActivations(name("conv2d"), 3, 31 * MEBIBYTE), SavedActivations("relu", 2, 9 * MEBIBYTE)),
        recomputation=Recomputation((Ref(name("4")), Ref("5")), ("4", "5"), 40 * MEBIBYTE, 27 * MEBIBYTE, 125.0),
        checkpointing=CheckpointedModules(
            tuple(map(name, ("stage1", "stage2", "stage3", "stage4", "stage5"))),
            *(40 * MEBIBYTE, 16 * MEBIBYTE, 7, 250.0, 60),
        ),
        checkpointing_host_us=10_500.0,
        alternatives=(
            Alternative(name("offload over pcie"), 36 * MEBIBYTE, 72 * MEBIBYTE, 2880.0, 1380.0),
            Alternative("relu masks of 1 bit", 8 * MEBIBYTE, 0, 50.0, 50.0),
        ),
    )
    return MemoryReport(
        model=name("tiny"),
        hardware=name("some-gpu"),
        batch_size=2,
        input_shape=(2, 3, 8, 8),
        precision="float32",
        layout="nhwc",
        parameter_bytes=11 * MEBIBYTE,
        buffer_bytes=MEBIBYTE // 2,
        input_bytes=MEBIBYTE // 5,
        inference=inference,
        training=training,
        unsupported=(Unsupported(name("my::op"), name("head.act")),),
    )


def cases(name: Name = as_it_is) -> list[Report]:
    """Three cases, of which the second is the fastest to gain and the last gains nothing."""
    doubtful = replace(report(name), batch_size=32, verdict="uncertain", leaning="compile", best_mode="default")
    return [doubtful, report(name), replace(given_up(name), hardware="other-gpu", extrapolated_share=0.25)]


def comparison(name: Name = as_it_is) -> Comparison:
    """Changes of two cases, with a slower mode, a lost mode and other layers."""
    before = report(name)
    slow = replace(before.modes["default"], latency_ms=8.0, low_ms=7.6, high_ms=8.4, speedup=0.75)
    slow = replace(slow, speedup_low=0.7, speedup_high=0.8)
    first, second = before.layers
    layers = (replace(first, compiled_us=20.0, speedup=1.0, speedup_low=0.75), replace(second, name="new"))
    after = replace(before, modes={"eager": before.modes["eager"], "default": slow}, layers=layers)
    both = [replace(one, batch_size=8) for one in (before, after)]
    return compare_reports([before, both[0], replace(before, model="a")], [after, both[1], replace(before, model="b")])


def rendered(kind: str, format: str, name: Name = as_it_is) -> str:  # noqa: A002 - the name of the option
    """A sample in a format: `report`, `layers` (of it), `plan`, `validation` or `memory`."""
    if kind in _REPORTS:
        return render(_REPORTS[kind](name), format)
    if kind in ("report", "layers"):
        return render(report(name), format, layers="all" if kind == "layers" else None)
    if kind == "cases":
        return render(cases(name), format)
    if kind == "comparison":
        return render_comparison(comparison(name), format, "all", regressions=comparison(name).regressions(5.0))
    if kind == "plan":
        return render_plan(plan(name), format)
    if kind == "validation":
        return render_validation(validation(name), format)
    return render_memory(memory(name), format)


_REPORTS = {"breaks": with_breaks, "given_up": given_up, "failing": failing}
KINDS = ("report", "layers", *_REPORTS, "cases", "comparison", "plan", "validation", "memory")
