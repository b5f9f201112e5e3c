"""Which measurements a family's predictor may see, and which family a model is of."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from costmodel.calibration import evaluation, scores
from costmodel.calibration.host_costs import CalibrationCase
from costmodel.calibration.intervals import intervals
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.models_file import noise, read_measured, spread, usual_probe_us
from costmodel.calibration.residual_fit import Residuals
from costmodel.calibration.residuals import Fitted
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.cost_tables import COSTS
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.timed_trace import TimedTrace
from costmodel.training.families import family_of


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("resnet50", "resnet"),
        ("timm:seresnext26d_32x4d", "resnet"),
        ("tv:wide_resnet50_2", "resnet"),
        ("timm:inception_resnet_v2", "inception"),
        ("timm:repvgg_a2", "vgg"),
        ("timm:tf_efficientnetv2_b0", "mobilenet"),
        ("efficientnet_v2_s", "mobilenet"),
        ("timm:haloregnetz_b", "regnet"),
        ("vit_b_16", "vit"),
        ("timm:levit_128s", "levit"),
        ("timm:convmixer_768_32", "convmixer"),
        ("timm:mobilevitv2_050", "mobilevit"),
        ("timm:dpn92", "dpn"),
        ("swin_v2_t", "swin"),
        ("timm:swinv2_tiny_window8_256", "swin"),
        ("timm:poolformerv2_s12", "poolformer"),
        ("timm:mvitv2_tiny", "mvit"),
        ("conv", "conv"),
    ],
)
def test_families(model, family):
    assert family_of(model) == family


def case(probe_us: float | None, environment: int) -> str:
    record = {"model": "alexnet", "batch_size": 1, "precision": "float32", "layout": "nchw", "environment": environment}
    return json.dumps(record | ({"probe_us": probe_us} if probe_us else {}))


def test_hosts_are_compared_with_the_least_disturbed_machine(tmp_path):
    probed = [case(4.0, 0), case(5.04, 0), case(8.0, 0), case(10.0, 1), case(None, 1), case(6.0, 2)]
    (tmp_path / "models.jsonl").write_text("\n".join(['{"schema": 1}', *probed]))
    cases, _ = read_measured(tmp_path / "models.jsonl")
    assert usual_probe_us(cases) == 5.0  # of 5.04, 10 and 6, to two digits
    assert [one.host_speed for one in cases] == pytest.approx([*[5 / 5.04] * 3, 0.5, 0.5, 5 / 6])


def test_without_a_probe_every_host_is_alike(tmp_path):
    (tmp_path / "models.jsonl").write_text("\n".join(['{"schema": 1}', case(None, 0), case(None, 1)]))
    cases, _ = read_measured(tmp_path / "models.jsonl")
    assert usual_probe_us(cases) is None
    assert [one.host_speed for one in cases] == [1.0, 1.0]


RELU = "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"
PROGRAM = IssueTrace(
    (Kernel("aten", parse(RELU), ("0",)),), (0.0,), views=0, calls=Calls(modules=1), parameters=0, footprint=512
)


def known(eager_us: float, trace: IssueTrace = PROGRAM) -> CalibrationCase:
    timed = TimedTrace(trace, [2.0], [5.0])
    return CalibrationCase(timed, timed, {"eager_us": eager_us})


def test_a_models_own_family_tells_nothing_of_it(monkeypatch: pytest.MonkeyPatch):
    names = ["alexnet", "vgg11", "vgg16", "resnet18", "resnet34", "densenet121", "timm:dla34", "swin_t"]
    cases = [MeasuredModel(name, 1, "float32", "nchw", {}, {}) for name in names]
    folds = {case.fold for case in cases}
    assert len(folds) > 2
    numbers = np.arange(len(cases), dtype=np.float32)[:, None]  # each case's only property is its place
    everything = Residuals(numbers, {})

    def fit(_, __, learns, on_cpu):
        return Fitted({}, SimpleNamespace(cases=everything.take(learns), processes={}), everything)

    monkeypatch.setattr(evaluation.residuals, "fit", fit)
    monkeypatch.setattr(evaluation, "calibration_cases", lambda tested, *_: [known(1.0) for _ in tested])
    monkeypatch.setattr(evaluation.residual_fit, "condition", lambda some, _: SimpleNamespace(cases=some))
    monkeypatch.setattr(evaluation, "evaluate_case", lambda case, _, __, *models: {case.model: models})
    rows = evaluation.leave_families_out(
        cases, [(PROGRAM, PROGRAM)] * len(cases), [known(1.0)] * len(cases), dict.fromkeys(folds), jobs=1
    )
    models = {name: found for row in rows for name, found in row.items()}
    assert set(models) == set(names)
    for case in cases:
        strangers, related = ({names[int(x)] for x in found.cases.properties[:, 0]} for found in models[case.model])
        assert strangers == {other.model for other in cases if other.fold != case.fold}
        assert related == set(names) - {case.model}


def test_a_case_is_predicted_for_the_profiles_own_host_and_for_the_one_that_measured():
    tables = {name: dict.fromkeys(costs, 0.0) for name, costs in COSTS.items()}
    tables["eager_host"]["start"], tables["default_host"]["start"], tables["graph_host"]["start"] = 30.0, 18.0, 6.0
    case = MeasuredModel("alexnet", 1, "float32", "nchw", {"eager_us": 50.0}, {}, host_speed=0.5)
    row = evaluation.evaluate_case(case, replace(known(50.0), host_speed=0.5), tables)
    # of eager execution 30 us of host, 60 where it is half as fast, and 2 of device
    assert (row["eager_us"], row["probed_eager_us"], row["alone_eager_us"]) == (32.0, 62.0, 62.0)
    assert row["speedup/default"] == 32 / 20
    assert row["probed_speedup/reduce-overhead"] == 62 / 14
    assert not any(name.startswith("related") for name in row)  # not asked for


CASES = {"batch_size": 1, "precision": "float32", "layout": "nchw"}


def test_scores_by_machine_and_by_calibrated_host():
    row = CASES | {"speedup/default": 2.0, "probed_speedup/default": 1.1}
    home = [row | {"model": f, "family": f, "environment": 0, "measured_speedup/default": 2.0} for f in "ab"]
    away = [row | {"model": f, "family": f, "environment": 1, "measured_speedup/default": 1.0} for f in "ab"]
    rows = scores.score_table(pd.DataFrame([*home, *away]))
    found = {row["cases_of"]: row for row in rows if row["cases_of"].endswith("float32, batch 1")}
    # a case's two processes are 0.55 and 1.1 times as fast as predicted: their middle is the root of the product
    calibrated, uncalibrated = found["float32, batch 1"], found["uncalibrated host: float32, batch 1"]
    assert calibrated["mean_error"] == pytest.approx(1 - math.sqrt(0.55 * 1.1))
    assert (calibrated["cases"], uncalibrated["cases"], uncalibrated["mean_error"]) == (2, 4, 0.5)
    (singly,) = [row for row in rows if row["cases_of"].startswith("each process")]
    assert (singly["cases"], singly["mean_error"]) == (4, pytest.approx(0.275))  # 0.45 and 0.1 off
    by_machine = {row["cases_of"]: row["mean_error"] for row in rows if row["cases_of"].startswith("machine")}
    whole = "float32, batch 1 and 32"
    assert by_machine == pytest.approx({f"machine 1: {whole}": 0.45, f"machine 2: {whole}": 0.1})
    assert {row["mode"] for row in rows} == {"default"}
    alone = scores.score_table(pd.DataFrame(home))
    assert {row["cases_of"] for row in alone} == {whole, "float32, batch 1", "all"}


def process(eager: float, default: float | None = None, graph: float | None = None) -> dict[str, object]:
    """A process's measurements of alexnet, microseconds; predicted are 100, 50 and 20."""
    seen = {"measured_eager_us": eager, "measured_default_us": default, "measured_graph_us": graph}
    seen |= {"measured_speedup/default": eager / default if default else None}
    seen |= {"measured_speedup/reduce-overhead": eager / graph if graph else None}
    predicted = {"eager_us": 100.0, "graph_us": 20.0, "speedup/default": 2.0, "speedup/reduce-overhead": 5.0}
    return CASES | {"model": "alexnet", "family": "alexnet"} | seen | predicted


def test_a_slow_process_is_slow_in_default_too_but_replays_as_fast():
    slow = [process(150.0, 75.0, 20.0), process(120.0), process(120.0)]
    frame = pd.DataFrame([*slow, process(90.0) | {"model": "vgg11"}])
    default, graph = (scores.merge_processes(frame, mode) for mode in scores.MODES)
    # both of the one process's calls took half as long again: as fast as predicted
    assert default["measured_speedup/default"][0] == pytest.approx(2.0)
    # the middle of the three eager latencies, 120, over the only replay
    assert graph["measured_speedup/reduce-overhead"][0] == pytest.approx(6.0)
    assert graph["measured_speedup/reduce-overhead"].isna().tolist() == [False, True]  # of vgg11 there is none
    assert scores.score(graph, "reduce-overhead")["mean_error"] == pytest.approx(1 / 6)


def test_each_process_is_compared_with_what_was_predicted_for_its_host():
    hosts = [process(100.0, 50.0, 20.0), process(200.0) | {"eager_us": 200.0, "speedup/reduce-overhead": 10.0}]
    found = scores.merge_processes(pd.DataFrame(hosts), "reduce-overhead")
    assert found["measured_speedup/reduce-overhead"].tolist() == found["speedup/reduce-overhead"].tolist() == [7.5]


def test_at_most_so_many_cases_are_taken_of_every_family_alike():
    names = [*(f"resnet{i}" for i in range(50)), "vgg11", "vgg16", "alexnet"]
    cases = [MeasuredModel(name, 1, "float32", "nchw", {}, {}) for name in names]
    few = spread(cases, 6)
    assert sorted(one.family for one in few) == ["alexnet", "resnet", "resnet", "resnet", "vgg", "vgg"]
    assert few == sorted(few, key=cases.index)
    assert spread(cases, 53) == cases
    assert {one.model for one in few} == {one.model for one in spread(cases[::-1], 6)}  # whatever their order


def test_a_sweeps_own_file_has_no_first_line_and_failed_models_are_passed_over(tmp_path):
    failed = json.dumps(json.loads(case(None, 0)) | {"error": "RuntimeError: no"})
    (tmp_path / "models.jsonl").write_text("\n".join([case(4.0, 0), failed, case(8.0, 0)]))
    cases, about = read_measured(tmp_path / "models.jsonl")
    assert [one.record["probe_us"] for one in cases] == [4.0, 8.0]
    assert about == {}


def test_noise_is_half_the_range_of_the_rounds():
    def rounds(*medians: float) -> list[list[float]]:
        return [[median] * 5 for median in medians]

    records = [
        {"latency_us": {"eager/default": rounds(9.0, 11.0), "default": rounds(4.0, 4.0)}},
        {"latency_us": {"eager/default": rounds(10.0, 10.0), "default": rounds(3.0, 5.0, 4.0)}},
    ]
    cases = [MeasuredModel("alexnet", 1, "float32", "nchw", {}, record) for record in records]
    assert noise(cases) == pytest.approx({"eager": 0.05, "default": 0.125})


def test_intervals_are_those_of_a_known_host():
    one = {"environment": 0, "eager_us": 11.0, "probed_eager_us": 10.0, "measured_eager_us": 10.0}
    other = {"environment": 1, "eager_us": 9.0, "probed_eager_us": 10.5, "measured_eager_us": 10.0}
    found = intervals(pd.DataFrame([one, other]))  # with so few cases the widest error holds them
    assert found["latency"] == pytest.approx({"eager": math.log(1.05)})
    assert found["speedup"] == {}


def test_errors_of_latency_by_hand():
    row = {"probed_eager_us": 10.5, "measured_eager_us": 10.0, "probed_default_us": 9.0}
    frame = pd.DataFrame([row, row | {"probed_eager_us": 13.5}, row | {"measured_eager_us": None}])
    (found,) = scores.latency_scores(frame)
    assert found == pytest.approx(
        {"mode": "eager", "cases": 2, "mean_error": 0.2, "median_error": 0.2, "within_10": 0.5}
    )
