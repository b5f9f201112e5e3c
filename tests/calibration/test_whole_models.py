"""Whole models of a profile with a base: whose hosts and whose compile times count."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration import whole_models as module
from costmodel.calibration.base_profile import WIDER, BaseProfile
from costmodel.calibration.compile_records import COMPILE_TIMES
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.whole_models import MeasuredModels, whole_models
from costmodel.predictor.predictor import Base
from costmodel.profiles.profile import load_profile
from tests.support.predictors import small_predictor

NONE = MeasuredModels((), (), {"cases": 0}, {})


@pytest.fixture
def base() -> BaseProfile:
    return BaseProfile(load_profile("nvidia-h200"), Base("nvidia-h200", "a" * 64, small_predictor()))


def sections(directory: Path, base: BaseProfile) -> dict[str, Any]:
    return whole_models(directory, NONE, None, base, False, lambda _: None, 1)[0]  # type: ignore[arg-type]


def test_without_measured_models_all_is_the_bases(tmp_path: Path, base: BaseProfile):
    found = sections(tmp_path, base)
    assert found["costs"] == base.profile.card["costs"]
    assert found["host"] == base.profile.card["host"]
    assert found["models"] == {"cases": 0, "noise": {}}
    assert "compile_times" not in found


def test_measured_compile_times_count_also_without_measured_models(tmp_path: Path, base: BaseProfile):
    shutil.copy(base.profile.path / COMPILE_TIMES, tmp_path)
    found = sections(tmp_path, base)
    assert found["compile_times"] == base.profile.card["compile_times"]
    narrow, wide = (part["intervals"]["compile"]["default"] for part in (found, base.profile.card))
    assert narrow == pytest.approx(wide, rel=1e-3)  # not widened, for they are the profile's own


def test_few_compilations_leave_the_bases_compile_times(base: BaseProfile):
    own = {"costs": {"compile": {"start": 1.0}, "eager_host": {"start": 2.0}}, "scores": {}}
    found = base.with_compile_times(own | {"intervals": {"latency": {"eager": 0.1}, "compile": {"default": 9.0}}})
    card = base.profile.card
    assert found["costs"]["compile"] == card["costs"]["compile"]
    assert found["costs"]["eager_host"] == {"start": 2.0}
    assert found["intervals"]["latency"] == {"eager": 0.1}
    assert found["intervals"]["compile"]["default"] == pytest.approx(WIDER * card["intervals"]["compile"]["default"])


def test_the_hosts_of_the_base_count_beside_the_one_that_measured():
    case = MeasuredModel("resnet18", 1, "float32", "nchw", {}, {"probe_us": 7.0})
    alone, among = module._host([case]), module._host([case], [5.0, 6.0])
    assert alone == {"probe_us": 7.0, "machines_us": [7.0]}
    assert among["probe_us"] == 7.0
    assert among["machines_us"] == [5.0, 6.0, 7.0]
    assert among["range_us"][0] < 5.0 < 7.0 < among["range_us"][1]
