"""Cases as files, workloads made of cases, and the dataset made of a ledger."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.sweep.export import export
from collectors.sweep.ledger import Ledger
from collectors.workloads import catalog
from collectors.workloads.cases import UnitCase, distinct, read_cases, size_bytes, write_cases
from collectors.workloads.convolution_space import ConvUnit, kernel_cases, unit_cases
from costmodel.errors import DatasetError, RequestError
from costmodel.ir import parse
from costmodel.training.dataset import read_frame

RELU = "graph _ {\n  input %a0: float32[4096]\n  %0 = relu(self=%a0) : float32[4096]\n  return %0\n}"
UNIT = ConvUnit(batch=2, in_channels=8, out_channels=12, size=9, kernel=3, stride=2, padding=1)


def test_cases_survive_a_file(tmp_path: Path):
    cases = list(unit_cases(UNIT, position=0.5))
    write_cases(tmp_path / "cases.jsonl", cases)
    assert list(read_cases(tmp_path / "cases.jsonl")) == cases
    assert [path.name for path in tmp_path.iterdir()] == ["cases.jsonl"]


@pytest.mark.parametrize("line", ["{", '{"graph": "x"}', '{"graph": "x", "runner": "aten", "more": 1}', "3"])
def test_a_file_of_something_else_is_refused_by_line(line: str, tmp_path: Path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"graph": "x", "runner": "aten"}\n' + line)
    with pytest.raises(DatasetError, match=r"cases\.jsonl:2: not a case"):
        list(read_cases(path))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(DatasetError, match="cannot be read"):
        list(read_cases(tmp_path / "none"))


def test_the_same_case_is_kept_once_a_unit():
    case = UnitCase(RELU, "aten")
    kept = distinct(
        [case, replace(case, source="elsewhere"), replace(case, unit="u"), replace(case, runner="inductor")]
    )
    assert kept == [case, replace(case, unit="u"), replace(case, runner="inductor")]


def test_a_ledger_becomes_a_dataset_with_its_environment(tmp_path: Path):
    case = next(unit_cases(UNIT, position=0.25))
    with Ledger(tmp_path / "ledger.sqlite", {"device": "test"}) as ledger:
        ledger.finish(case, "ok", {"device_us": [1, 2, 3, 4, 5], "host_us": [2, 3, 4, 5, 6], "copies": 3})
        ledger.finish(UnitCase(RELU, "aten"), "failed", {"error": "no"})
        ledger.start(UnitCase(RELU, "inductor"))
    assert export(tmp_path / "ledger.sqlite", tmp_path / "units.parquet") == 2
    frame, about = read_frame(tmp_path / "units.parquet")
    assert list(frame["status"]) == ["ok", "failed"]
    assert frame["device_us_p50"][0] == 3.0
    assert frame["host_us_p90"][0] == 6.0
    assert frame["graph"][0] == case.graph
    assert math.isnan(frame["device_us_p50"][1])
    assert len(about.pop("dates")) in (1, 2)  # two where midnight passed in between
    assert about == {"environment": {"device": "test"}, "cases": 2, "statuses": {"ok": 1, "failed": 1}}


def test_an_empty_ledger_makes_no_dataset(tmp_path: Path):
    Ledger(tmp_path / "ledger.sqlite", {}).close()
    with pytest.raises(DatasetError, match="nothing has been measured"):
        export(tmp_path / "ledger.sqlite", tmp_path / "units.parquet")
    assert not (tmp_path / "units.parquet").exists()


def test_workloads_are_named_once_and_known():
    assert catalog.check([]) == ("conv", "matmul", "layer")
    assert catalog.check(["layer", "conv", "layer"]) == ("layer", "conv")
    with pytest.raises(
        RequestError,
        match="unknown workload 'cnov'; choose of conv, matmul, layer, tf32, bfloat16, casts, backward",
    ):
        catalog.check(["cnov"])


def test_workloads_mix_but_keep_units_together():
    cases = catalog.unit_cases(["conv", "matmul"], "cuda", quick=False, end=0.0)
    assert cases == catalog.unit_cases(["conv", "matmul"], "cuda", quick=False, end=0.0)
    sources = [case.source for case in cases]
    assert {"conv", "matmul"} == set(sources[:100]) == set(sources)
    ended: set[str] = set()
    for before, case in itertools.pairwise(cases):
        assert not case.unit or case.unit not in ended
        if before.unit != case.unit:
            ended.add(before.unit)


@pytest.mark.parametrize("unit", [UNIT, replace(UNIT, activation=False), replace(UNIT, batch_norm=False)])
def test_a_convolution_is_measured_alone_in_both_layouts_and_fused(unit: ConvUnit):
    found = list(kernel_cases(unit))
    graphs = [parse(case.graph) for case in found]
    bases = ["convolution", "convolution"] + ["cudnn_convolution_relu"] * unit.activation
    assert [[op.base for op in graph.ops] for graph in graphs] == [[base] for base in bases]
    assert [graph.ops[0].type.layout for graph in graphs[:2]] == ["nchw", "nhwc"]
    assert {graph.ops[0].type.shape for graph in graphs} == {(2, 12, 5, 5)}
    assert [len(graph.values) for graph in graphs[:2]] == [2 if unit.batch_norm else 3] * 2  # a bias without batch norm
    assert all(case.unit == "" and case.runner == "aten" for case in found)
    assert bool(unit.activation) == (found[-1].key in {case.key for case in unit_cases(unit)})


def test_lone_convolutions_are_for_full_sweeps_and_all_there_is_on_a_cpu():
    on_cpu = catalog.unit_cases(["conv"], "cpu", quick=False, end=0.0)
    on_gpu = [catalog.unit_cases(["conv"], "cuda", quick, 0.0) for quick in (False, True)]
    alone = [[case for case in cases if not case.unit] for cases in (*on_gpu, on_cpu)]
    least = 2 * catalog.CONV_UNITS
    assert [len(cases) > least for cases in alone] == [True, False, True]
    assert len(alone[0]) > least + 0.9 * catalog.MODEL_LIKE_CONVOLUTIONS
    assert alone[1] == []
    assert alone[2] == on_cpu


def test_layers_say_how_often_models_call_them(monkeypatch: pytest.MonkeyPatch):
    """Two models share a kernel, one of them calls it twice: three uses, and the first to name it is its source."""
    lone, shared = UnitCase(RELU, "aten", source="a"), UnitCase(RELU, "inductor", source="a")
    outcomes = [(None, [lone, shared]), (None, [replace(shared, source="b")] * 2), (None, ValueError("no such model"))]
    monkeypatch.setattr(catalog, "in_parallel", lambda *_: outcomes)
    blocks = [replace(shared, source="joins"), UnitCase(RELU.replace("relu", "sigmoid"), "aten", source="joins")] * 2
    monkeypatch.setattr(catalog.concat_blocks, "sample", lambda *_: blocks)
    drawn, mixed = (UnitCase(RELU.replace("relu", name), "aten", source="map") for name in ("silu", "gelu"))
    monkeypatch.setattr(catalog.single_operators, "sample", lambda *_: [drawn])
    monkeypatch.setattr(catalog.mixing_blocks, "sample", lambda *_: [replace(mixed, source="mixers")])
    found = catalog.unit_cases(["layer"], "cuda", quick=False, end=0.0)
    assert sorted((case.runner, case.uses, case.source) for case in found) == [
        ("aten", 1, "a"),
        ("aten", 1, "joins"),  # blocks that no model is made of are no uses
        ("aten", 1, "map"),
        ("aten", 1, "mixers"),
        ("inductor", 3, "a"),
    ]


def test_quick_workloads_are_few_and_tiny_and_for_the_device():
    cases = catalog.unit_cases(["conv", "matmul"], "cpu", quick=True, end=0.0)
    assert 8 <= len(cases) <= 20
    assert all(case.way != "cudnn" for case in cases)
    assert all(size_bytes(parse(case.graph)) < 16 << 20 for case in cases)


def test_a_request_that_was_made_before_is_remembered(tmp_path: Path):
    path, cases = tmp_path / "cases.jsonl", list(unit_cases(UNIT))
    assert catalog.remembered(path, {"quick": True}) is None
    catalog.remember(path, {"quick": True}, cases)
    assert catalog.remembered(path, {"quick": True}) == cases
    assert catalog.remembered(path, {"quick": False}) is None


@pytest.mark.slow
def test_kernels_under_autocast_are_those_that_no_single_precision_runs():
    """Attention modules have a path of their own under autocast, after which layer norms read another memory order."""
    cases = distinct(catalog.capture_casts(("vit_b_32", 2, "float16", "cuda")))
    mixed = {"float32[" in case.graph and " float16[" in case.graph for case in cases}
    assert mixed == {True, False}
    norms = [case.graph for case in cases if "native_layer_norm" in case.graph and case.runner == "aten"]
    assert len(norms) == 1
    assert "permute(self=%a0, dims=[1, 0, 2]) : float32[2,50,768] strided" in norms[0]
    assert not [case for case in cases if "float16[3072,768]" in case.graph and "to_copy" not in case.graph]
