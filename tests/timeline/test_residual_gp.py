"""Residual model: equal to scikit-learn and to sums by hand; damaged files are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from costmodel.calibration import residual_fit
from costmodel.calibration.residual_fit import LEAST_MODELS, Residuals
from costmodel.errors import ProfileError
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.network import scaled
from costmodel.profiles.profile import WHOLE_MODELS, Profile
from costmodel.tensor_file import write_tensors
from costmodel.timeline import residual_gp
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.queue import Timing
from costmodel.timeline.residual_gp import PROPERTIES, GaussianProcess, ResidualModel
from costmodel.timeline.timed_trace import TimedTrace

RELU = "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"
CALL = Kernel("aten", parse(RELU), ("0",))
PROGRAM = IssueTrace(
    (CALL, CALL), (0.0, 1.0), views=5, calls=Calls(modules=1, views=5, queries=7), parameters=3, footprint=1000
)
TIMED = TimedTrace(PROGRAM, [6.0, 2.0], [5.0, 7.0])
TIMINGS = {"eager": Timing(80.0, 60.0, 8.0), "default": Timing(50.0, 40.0, 10.0)}


def cases(count: int, seed: int = 0) -> Residuals:
    """Models whose eager latency is off by half their first property, and default's by nothing but noise."""
    random = np.random.default_rng(seed)
    properties = random.normal(size=(count, len(PROPERTIES))).astype(np.float32)
    noise = 0.01 * random.normal(size=(2, count))
    return Residuals(properties, {"eager": 0.1 * properties[:, 0] + noise[0], "default": noise[1]})


def predicted(found: ResidualModel, properties: np.ndarray) -> dict[str, np.ndarray]:
    square = residual_gp.squares(scaled(properties, found.mean, found.scale), found.models)
    return {mode: process.mean(square) for mode, process in found.processes.items()}


def test_properties_by_hand():
    fused = Kernel("triton", parse(RELU), ("0",))
    compiled = TimedTrace(replace(PROGRAM, kernels=(fused, CALL)), [6.0, 2.0], [5.0, 7.0])
    found = residual_gp.properties_of(TIMED, compiled)
    # two calls of one kind and class; the host 12 us of both, the device 8; for each call (1 + 5) / 2 views,
    # (1 + 1) / 2 modules, (1 + 7) / 2 queries and (1 + 3) / 2 parameters; 4 us a call; the fused kernel has 3/4 of it
    logs = [math.log(x) for x in (2, 1.5, 1.5, 1, 1, 3, 1, 4, 2, 4, 0.75**2 + 0.25**2)]
    assert found == pytest.approx([*logs, 0.75, math.log(1000), 0.0])
    assert len(found) == len(PROPERTIES)


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.0), ("float16", 0.25), ("bfloat16", 0.25)])
def test_the_share_of_half_precision_is_that_of_library_calls(dtype: str, share: float):
    text = RELU.replace("float32", dtype)
    fused, call = Kernel("triton", parse(text), ("0",)), Kernel("aten", parse(text), ("0",))
    compiled = TimedTrace(replace(PROGRAM, kernels=(fused, call)), [6.0, 2.0], [5.0, 7.0])
    assert residual_gp.properties_of(TIMED, compiled)[PROPERTIES.index("half")] == pytest.approx(share)


def test_equal_to_scikit_learns_process():
    learnt, asked = cases(80), cases(20, seed=1).properties
    found = residual_fit.fit(learnt)
    process = found.processes["eager"]
    kernel = ConstantKernel(process.sd**2) * RBF(process.length) + WhiteKernel(process.noise**2)
    reference = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    mean, scale = learnt.moments
    reference.fit(scaled(learnt.properties, mean, scale), learnt.logs["eager"])
    assert predicted(found, asked)["eager"] == pytest.approx(reference.predict(scaled(asked, mean, scale)), abs=1e-4)


def test_what_is_learnt_holds_for_other_models():
    others = cases(40, seed=1)
    found = predicted(residual_fit.fit(cases(200)), others.properties)
    left = others.logs["eager"] - found["eager"]
    assert np.abs(left).mean() < 0.3 * np.abs(others.logs["eager"]).mean()
    assert np.abs(found["default"]).max() < 0.01  # there was nothing to learn


def test_a_model_measured_n_times_by_hand():
    """Of n equal measurements of one model: sd^2 n / (sd^2 n + noise^2) of what it was off by."""
    same = Residuals(np.zeros((3, len(PROPERTIES)), dtype=np.float32), {"eager": np.array([0.1, np.nan, 0.1])})
    found = residual_fit.condition(same, {"eager": GaussianProcess(sd=0.2, length=1.0, noise=0.1)})
    assert predicted(found, same.properties[:1])["eager"] == pytest.approx([0.1 * 0.08 / (0.08 + 0.01)], rel=1e-5)
    assert found.processes["eager"].weights[1] == 0.0  # not measured


def test_processes_of_one_case_count_once_by_hand():
    properties = np.arange(4, dtype=np.float32)[:, None] * np.ones(len(PROPERTIES), dtype=np.float32)
    logs = {"eager": np.array([0.1, 0.5, 0.3, 0.4]), "default": np.array([np.nan, 0.2, np.nan, np.nan])}
    found = Residuals(properties, logs, ("a", "b", "a", "a")).merged()
    assert found.properties[:, 0].tolist() == [0.0, 1.0]
    assert found.logs["eager"].tolist() == [0.3, 0.5]
    assert found.logs["default"].tolist() == pytest.approx([math.nan, 0.2], nan_ok=True)
    assert Residuals(properties, logs, ("a", "b", "a", "a")).take([2, 1]).keys == ("a", "b")


def test_a_case_measured_often_weighs_no_more_than_another():
    learnt = cases(60)
    keys = tuple(range(60))
    often = Residuals(learnt.properties, learnt.logs, keys).take([*range(60), *[7] * 40])
    once, again = (predicted(residual_fit.fit(some), cases(5, seed=2).properties)["eager"] for some in (learnt, often))
    assert again == pytest.approx(once)


def test_a_model_unlike_all_others_is_left_as_it_is():
    learnt = cases(60)
    found = residual_fit.condition(learnt, {"eager": GaussianProcess(sd=0.1, length=0.3, noise=0.01)})
    far = np.full((1, len(PROPERTIES)), 5.0, dtype=np.float32)
    assert predicted(found, far)["eager"] == pytest.approx([0.0], abs=1e-9)


def test_too_few_cases_tell_nothing():
    few = cases(LEAST_MODELS)
    few.logs["default"][0] = np.nan
    assert set(residual_fit.fit(few).processes) == {"eager"}
    assert residual_gp.no_residuals().correct(TIMINGS, TIMED, TIMED) == TIMINGS


def always(factor: float) -> ResidualModel:
    """A discrepancy that multiplies the eager latency of TIMED so."""
    here = residual_gp.properties_of(TIMED, TIMED)
    none = residual_gp.no_residuals()
    weights = np.array([math.log(factor)], dtype=np.float32)
    return replace(
        none, models=scaled(here[None], none.mean, none.scale), processes={"eager": GaussianProcess(1, 1, 1, weights)}
    )


def test_all_of_a_timing_is_corrected_alike():
    found = always(1.5).correct(TIMINGS, TIMED, TIMED)
    assert found["default"] == TIMINGS["default"]
    eager = found["eager"]
    assert (eager.latency_us, eager.host_us, eager.device_us) == pytest.approx((120.0, 90.0, 12.0))


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_no_correction_goes_far(factor: float):
    found = always(factor).correct(TIMINGS, TIMED, TIMED)["eager"].latency_us
    assert math.log(found / TIMINGS["eager"].latency_us) == pytest.approx(math.copysign(0.5, math.log(factor)))


def test_a_file_holds_it_all(tmp_path: Path):
    found = residual_fit.fit(cases(50))
    sha256 = found.save(tmp_path / WHOLE_MODELS)
    again = ResidualModel.load(tmp_path / WHOLE_MODELS, sha256)
    one, other = (predicted(each, cases(5).properties)["eager"] for each in (found, again))
    assert one == pytest.approx(other, abs=2e-4)  # numbers of 32 bits
    for mode, numbers in found.describe().items():
        assert again.describe()[mode] == pytest.approx(numbers)


def test_a_profile_without_a_residual_model_corrects_nothing(tmp_path: Path):
    assert Profile("mine", tmp_path, {"schema": 1}).residual_model.processes == {}


def _tensors(change: Callable[[dict[str, np.ndarray]], object]) -> dict[str, np.ndarray]:
    width = len(PROPERTIES)
    tensors = {
        "mean": np.zeros(width, dtype=np.float32),
        "scale": np.ones(width, dtype=np.float32),
        "models": np.zeros((2, width), dtype=np.float32),
        "eager/weights": np.zeros(2, dtype=np.float32),
        "eager/kernel": np.ones(3, dtype=np.float32),
    }
    change(tensors)
    return tensors


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(lambda t: t.pop("mean"), "not a whole-model file", id="missing"),
        pytest.param(lambda t: t.update(mean=np.full(9, np.nan, dtype=np.float32)), "finite float32", id="nan"),
        pytest.param(lambda t: t.update(mean=np.zeros(9)), "finite float32", id="float64"),
        pytest.param(lambda t: t.update(scale=np.zeros(9, dtype=np.float32)), "scale is not", id="scale-0"),
        pytest.param(lambda t: t.update(mean=np.zeros(8, dtype=np.float32)), "do not fit", id="width"),
        pytest.param(lambda t: t.update({"eager/weights": np.zeros(3, dtype=np.float32)}), "do not fit", id="weights"),
        pytest.param(lambda t: t.update({"eager/kernel": np.zeros(3, np.float32)}), "kernel is not", id="length-0"),
        pytest.param(lambda t: t.update({"eager/kernel": np.ones(2, dtype=np.float32)}), "not a whole", id="kernel"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object], match: str
):
    path = tmp_path / WHOLE_MODELS
    write_tensors(path, _tensors(change), {"properties": PROPERTIES})
    with pytest.raises(ProfileError, match=match) as caught:
        ResidualModel.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_other_properties_or_another_hash_is_refused(tmp_path: Path):
    path = tmp_path / WHOLE_MODELS
    write_tensors(path, _tensors(lambda _: None), {"properties": PROPERTIES[:-2]})
    with pytest.raises(ProfileError, match="other properties than this version's; train it again"):
        ResidualModel.load(path)
    with pytest.raises(ProfileError, match="SHA-256"):
        Profile("mine", tmp_path, {"schema": 1, "whole_models_sha256": "0" * 64}).residual_model  # noqa: B018 - reading it raises
