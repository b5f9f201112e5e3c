"""Twins of measured kernels in TF32 and bfloat16, and whole models under autocast."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from collectors.processes.run_graph import callables
from collectors.whole_models.built_model import build
from collectors.workloads import other_precisions
from collectors.workloads.cases import UnitCase
from collectors.workloads.matmuls import linear_graph
from collectors.workloads.model_cases import case_key, in_other_precisions, with_cudnn_benchmark
from costmodel.calibration.models_file import read_measured
from costmodel.errors import RequestError
from costmodel.execution.torch_settings import matmul_precision

FLOAT32, FLOAT16 = (str(linear_graph(8, 16, 32, dtype, True)) for dtype in ("float32", "float16"))


def test_twins() -> None:
    tf32, bfloat16 = other_precisions.PRECISIONS["tf32"], other_precisions.PRECISIONS["bfloat16"]
    assert tf32(UnitCase(FLOAT32, "aten", source="m@1")) == UnitCase(FLOAT32, "aten_tf32", source="m@1")
    assert tf32(UnitCase(FLOAT16, "aten")) is None
    assert tf32(UnitCase(FLOAT32, "inductor")) is None
    twin = bfloat16(UnitCase(FLOAT16, "inductor"))
    assert twin == UnitCase(str(linear_graph(8, 16, 32, "bfloat16", True)), "inductor")
    assert bfloat16(UnitCase(FLOAT32, "aten")) is None


def test_an_eager_case_in_tf32_is_not_compiled_and_has_a_key_of_its_own() -> None:
    plain, fast = UnitCase(FLOAT32, "aten"), UnitCase(FLOAT32, "aten_tf32")
    assert not fast.compiled
    assert plain.key != fast.key


def test_a_sample_of_the_shipped_dataset() -> None:
    """Most shapes are of models; every case is distinct."""
    cases = other_precisions.sample("tf32", 500, seed=3)
    assert Counter(map(other_precisions._stratum, cases)) == {"model": 340, "random": 140}
    assert {case.runner for case in cases} == {"aten_tf32"}
    assert len({case.key for case in cases}) == 480


def test_the_precision_of_matmuls_is_restored() -> None:
    before = torch.get_float32_matmul_precision()
    with matmul_precision("high"):
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(ZeroDivisionError), matmul_precision("medium"):
        _ = 1 / 0
    assert torch.get_float32_matmul_precision() == before


def test_a_case_in_tf32_runs_as_eager_execution_does() -> None:
    graph = linear_graph(8, 16, 32, "float32", True)
    calls, reference, arguments = callables(graph, "aten_tf32", "cpu")
    assert calls[0].__closure__ is not None
    torch.testing.assert_close(calls[0](), reference(*arguments))


def test_keys_of_whole_models() -> None:
    case = {"model": "resnet50", "batch_size": 32, "precision": "float32", "layout": "nchw"}
    assert case_key(case) == "resnet50@32 float32 nchw"
    assert case_key({**case, "matmul_precision": "highest"}) == case_key(case)
    assert case_key({**case, "amp": "float16"}) == "resnet50@32 float32 nchw amp=float16"
    assert case_key({**case, "matmul_precision": "high"}) == "resnet50@32 float32 nchw matmuls=high"
    assert case_key({**case, "cudnn_benchmark": True}) == "resnet50@32 float32 nchw cudnn.benchmark"


def test_cases_of_whole_models_come_with_their_plain_ones() -> None:
    cases = in_other_precisions(["a", "b"], [32, 1])
    assert len({case_key(case) for case in cases}) == 2 * 2 * 4
    assert [case_key(case) for case in cases[:4]] == [
        "a@32 float32 nchw",
        "a@32 float32 nchw amp=float16",
        "a@32 float32 nchw matmuls=high",
        "a@32 float32 nchw amp=bfloat16",
    ]


def test_cases_with_cudnn_benchmark_follow_those_without() -> None:
    assert [case_key(case) for case in with_cudnn_benchmark(["a", "b"], [8])] == [
        "a@8 float32 nchw amp=float16",
        "a@8 float32 nchw amp=float16 cudnn.benchmark",
        "b@8 float32 nchw amp=float16",
        "b@8 float32 nchw amp=float16 cudnn.benchmark",
    ]


def test_cudnn_benchmark_is_as_the_case_says() -> None:
    case = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw", "img_size": 64}
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=True):
        build({**case, "cudnn_benchmark": True}, "cpu")
        assert torch.backends.cudnn.benchmark
        build(case, "cpu")
        assert not torch.backends.cudnn.benchmark


def test_a_model_built_for_autocast_runs_under_it() -> None:
    case = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw", "img_size": 64}
    before = torch.get_float32_matmul_precision()
    try:
        with torch.no_grad():
            model = build({**case, "amp": "bfloat16", "matmul_precision": "high"}, "cpu")
            assert torch.get_float32_matmul_precision() == "high"
            assert model.eager().dtype is torch.bfloat16
            assert model.outputs(model.module)[0].dtype is torch.bfloat16
            assert build(case, "cpu").eager().dtype is torch.float32
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("field", [{"amp": "int8"}, {"matmul_precision": "lowest"}])
def test_impossible_precisions_are_refused(field: dict[str, str]) -> None:
    case = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw"}
    with pytest.raises(RequestError, match=next(iter(field.values()))):
        build({**case, **field}, "cpu")


def test_records_in_other_precisions_do_not_calibrate(tmp_path: Path) -> None:
    record = '{"model": "a", "batch_size": 1, "precision": "float32", "layout": "nchw", "eager_us": [1, 1, 1, 1, 1]'
    path = tmp_path / "models.jsonl"
    others = ("", ', "amp": "float16"', ', "matmul_precision": "high"', ', "cudnn_benchmark": true')
    path.write_text("".join(f"{record}{more}}}\n" for more in others))
    cases, _ = read_measured(path, slow=True)
    assert len(cases) == 1
