"""Predicted beside published speedups: rank correlations by hand, and predictions that resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import check_against_timm as check
import pandas as pd
import pytest

from costmodel.report.kernel_prediction import KernelPrediction

MODELS = ("vgg11", "resnet18", "resnet34", "resnet50", "resnet101")


def measured(**speedups: list[float]) -> pd.DataFrame:
    """A file of throughputs at one batch size; a GPU that is not given has these speedups: 1, 2, 3, 4, 5."""
    columns: dict[str, Any] = {"model": list(MODELS), "img_size": 224}
    for gpu in check.GPUS:
        dynamo = [100.0 * speedup for speedup in speedups.get(gpu, [1, 2, 3, 4, 5])]
        columns |= {f"{gpu}_eager_batch": 1024, f"{gpu}_eager": 100.0}
        columns |= {f"{gpu}_dynamo_batch": 1024, f"{gpu}_dynamo": dynamo}
    return pd.DataFrame(columns)


def predicted(speedups: list[float], rooflines: list[float]) -> pd.DataFrame:
    """A file of predictions; at every GPU's bandwidth, speedups are 1.1 times those measured by default."""
    columns: dict[str, Any] = {"model": list(MODELS), "eager_ms": speedups, "eager_roofline_ms": rooflines}
    columns |= {f"eager_{bandwidth}_ms": [1.1, 2.2, 3.3, 4.4, 5.5] for bandwidth in check.BANDWIDTHS}
    columns |= {name.replace("eager", "default"): 1.0 for name in columns if name.startswith("eager")}
    return pd.DataFrame(columns)


def test_the_rank_correlation_of_five_numbers():
    """Ranks differ by 1, 1, 0, 1, 1: Spearman's rho is 1 - 6 * 4 / (5 * (25 - 1)) = 0.8; reversed ranks have -1."""
    frame = check.speedups(measured(), predicted([2.5, 1.5, 3.0, 9.0, 4.0], [5, 4, 3, 2, 1]))
    rows = check.correlation_table(frame).splitlines()[2:]
    assert rows[0] == "| predicted for `nvidia-h200` | 0.80 | 0.80 | 0.80 |"
    assert rows[1] == "| the same at this GPU's bandwidth | 1.00 | 1.00 | 1.00 |"
    assert rows[2].endswith("| -1.00 | -1.00 | -1.00 |")
    assert rows[4] == "| measured on RTX 5090 | - | 1.00 | 1.00 |"
    assert "| mean error of the speedup at this GPU's bandwidth | 10.0 % | 10.0 % | 10.0 % |" in rows


def kernel(device_us: float, traffic: int) -> KernelPrediction:
    times = {"host_start_us": 0.0, "host_us": 0.0, "device_start_us": 0.0, "low_us": 0.0, "high_us": 0.0}
    rest: dict[str, Any] = {
        "name": "relu",
        "layers": (),
        "backend": "aten",
        "flops": 0,
        "bound": "memory",
        "extrapolated": False,
    }
    return KernelPrediction(**rest, **times, bytes=traffic, device_us=device_us)


def test_no_kernel_is_faster_than_its_traffic():
    """At 1,000 GB/s 4 MB take 4 us: longer than 1 us as predicted, shorter than 10 us."""
    kernels = [kernel(1.0, 4_000_000), kernel(10.0, 4_000_000)]
    assert check.at_bandwidth_ms(kernels, 1000) == pytest.approx(0.014)


def test_a_gain_is_one_above_five_percent():
    """Of five predictions, two are on the other side of 1.05 than what was measured."""
    gains = measured(rtx_4090=[1.04, 1.06, 1.2, 1.0, 1.3])
    frame = check.speedups(gains, predicted([1.2, 1.1, 1.04, 1.03, 1.5], [1, 2, 3, 4, 5]))
    row = next(line for line in check.correlation_table(frame).splitlines() if "gain above 5 %" in line)
    assert row.endswith("| 60 % |")


def test_different_batch_sizes_leave_a_speedup_out():
    table = measured()
    table.loc[table["model"] == "resnet34", "rtx_4090_dynamo_batch"] = 768
    frame = check.speedups(table, predicted([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]))
    assert pd.isna(frame.loc["resnet34", "rtx_4090"])
    assert frame.loc["resnet34", "rtx_5090"] == 3.0
    assert check.correlation_table(frame).splitlines()[-1] == "| models | 5 | 5 | 4 |"


def test_the_median_of_a_family_leaves_the_model_itself_out():
    """Others of resnet18 in its family: 3, 4, 5; vgg11 has no other in its family: 2, 3, 4, 5."""
    medians = check.family_medians(pd.Series([1.0, 2.0, 3.0, 4.0, 5.0], index=list(MODELS)))
    assert medians.to_dict() == {"vgg11": 3.5, "resnet18": 4.0, "resnet34": 4.0, "resnet50": 3.0, "resnet101": 3.0}


def test_a_model_predicted_to_gain_more_than_it_does_comes_first():
    """vgg11 gains least everywhere and is predicted to gain most: ranks 1 and 0.2."""
    frame = check.speedups(measured(), predicted([9, 2, 3, 4, 5], [1, 2, 3, 4, 5]))
    worst = check.disagreements(frame)
    assert worst.index[0] == "vgg11"
    assert worst["difference"].iloc[0] == pytest.approx(0.8)


def test_predictions_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def predict_one(model: str, img_size: int) -> dict[str, Any]:
        asked.append(model)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"model": model, "img_size": img_size, "failure": "no, it cannot" if model == "vgg11" else ""}

    monkeypatch.setattr(check, "predict_one", predict_one)
    path = tmp_path / "predicted.csv"
    with pytest.raises(KeyboardInterrupt):
        check.predict_missing(measured(), path)
    check.predict_missing(measured(), path)
    table = pd.read_csv(path)
    assert sorted(table["model"]) == sorted(MODELS)
    assert len(asked) == len(MODELS) + 1  # the one that was interrupted again
    assert table.loc[table["failure"].notna(), "model"].tolist() == ["vgg11"]


def test_parallel_branches_are_merged_as_in_the_published_models():
    """timm's tables give 2.08 M parameters for mobileone_s0."""
    loaded = check.zoo.load("timm:mobileone_s0")
    module = check.reparameterized(loaded.module)
    assert round(sum(one.numel() for one in module.parameters()) / 1e6, 2) == 2.08
    assert not module.training


def test_every_measured_model_is_predicted():
    table, rows = pd.read_csv(check.PREDICTED), pd.read_csv(check.MEASURED)
    assert set(table["model"]) == set(rows["model"])
    assert not table["model"].duplicated().any()
    assert not rows["model"].duplicated().any()
