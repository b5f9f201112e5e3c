"""Which kernels Inductor has templates for, counted by hand; what is measured with them, and the table of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._dynamo.utils import counters

from collectors.cases import Case
from collectors.run import callables
from collectors.templates import templated_kernels
from collectors.worker import measure_case, warm
from costmodel.exact import capture_exactly
from costmodel.freeze import freeze
from costmodel.hardware import load_profile
from costmodel.ir import Graph, parse
from costmodel.kernels import Kernel
from costmodel.moves import rewrite
from costmodel.predictor import Estimate
from costmodel.scores import replace_section
from costmodel.zoo import load
from tests.scripts import load_script
from tests.test_inductor import PRODUCT

ROOT = Path(__file__).parent.parent
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")

CONVOLUTION = """graph _ {{
  input %a0: float32[1,8,4,4] nhwc
  param %p0: float32[8,{inner},3,3] nhwc
  param %p1: float32[8]
  %0 = convolution(input=%a0, weight=%p0, bias=%p1, stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False, \
output_padding=[0, 0], groups={groups}) : float32[1,8,4,4] nhwc
  %1 = relu(self=%0) : float32[1,8,4,4] nhwc
  return %1
}}"""


def convolution(groups: int = 1) -> Graph:
    return parse(CONVOLUTION.format(inner=8 // groups, groups=groups))


def bases(kernel: Kernel) -> list[str]:
    return [op.base for op in kernel.graph.ops]


class TestKernels:
    """A template computes what follows it elementwise, if nothing else reads its result."""

    def test_the_epilogue_is_computed_in_the_template(self):
        (kernel,) = templated_kernels(convolution())
        assert kernel.backend == "template"
        assert bases(kernel)[0] == "convolution"
        assert bases(kernel)[-1] == "relu"

    def test_a_grouped_convolution_has_none(self):
        assert [kernel.backend for kernel in templated_kernels(convolution(groups=2))] == ["aten", "triton"]

    def test_what_is_read_elsewhere_too_has_no_epilogue(self):
        text = PRODUCT.replace("  return %0", "  %1 = relu(self=%0) : float32[4,3]\n  return {}")
        fused, alone = (templated_kernels(parse(text.replace("{}", returned))) for returned in ("%1", "%0, %1"))
        assert [bases(kernel) for kernel in fused] == [["mm", "relu"]]
        assert [bases(kernel) for kernel in alone] == [["mm"], ["relu"]]

    @pytest.mark.parametrize(
        ("model", "count"),
        [
            ("resnet50", 53 + 1),  # convolutions, the classifier
            ("vit_b_16", 1 + 12 * 4 + 1),  # patches; queries to values, their projection, the block's two; the head
            ("mobilenet_v2", 52 - 17 + 1),  # all convolutions but the depthwise ones, the classifier
        ],
    )
    def test_of_models(self, model: str, count: int):
        loaded = load(model)
        graph = capture_exactly(loaded.module, loaded.inputs, model).graph
        kernels = templated_kernels(freeze(rewrite(graph, ("fold_batch_norm", "channels_last"))).main)
        assert sum(kernel.backend == "template" for kernel in kernels) == count


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
class TestMeasuring:
    """On a CPU Inductor has templates in C++."""

    def test_a_tuned_product_is_right(self):
        status, record = measure_case(Case(PRODUCT, "autotune"), "cpu")
        assert status in ("ok", "noisy")
        assert record["relative_error"] < 1e-5

    def test_choices_made_beside_other_processes_are_not_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        found = {}
        for runner in ("inductor", "autotune"):
            warm((Case(PRODUCT, runner), "cpu"))
            counters.clear()
            with torch.no_grad():
                callables(parse(PRODUCT), runner, "cpu")
            found[runner] = counters["inductor"]["fxgraph_cache_hit"]
        assert found == {"inductor": 1, "autotune": 0}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("benchmark_templates")


def test_the_page_has_the_table_of_the_file(script: ModuleType):
    rows = json.loads((ROOT / "docs" / "templates_h200.json").read_text(encoding="utf-8"))["rows"]
    page = ROOT / "docs" / "plans.md"
    table = script.table(rows, load_profile("nvidia-h200").predictor)
    text = replace_section(page, table, script.BEGIN, script.END)
    assert text == page.read_text(encoding="utf-8")


class Cudnn:
    """A predictor of one time for all of cuDNN's fused convolutions."""

    def __init__(self, us: float) -> None:
        self.us = us

    def predict(self, kernels: list[Kernel], _positions: list[float]) -> list[Estimate]:
        assert {kernel.anchor.base for kernel in kernels} == {"cudnn_convolution_relu"}
        return [Estimate(self.us, self.us, self.us, in_range=True)] * len(kernels)


ADDED = """graph _ {
  input %a0: float16[1,8,4,4] nhwc
  param %p0: float16[8,8,1,1] nhwc
  param %p1: float16[8]
  %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups=1) : float16[1,8,4,4] nhwc
  %1 = reshape(self=%p1, shape=[8, 1, 1]) : float16[8,1,1]
  %2 = add.Tensor(self=%0, other=%1) : float16[1,8,4,4] nhwc
  %3 = relu(self=%2) : float16[1,8,4,4] nhwc
  return %3
}""".replace("\\\n", "")


def test_the_bias_that_inductor_adds_is_given_to_the_convolution_again(script: ModuleType):
    kernel = script.fused(parse(ADDED))
    assert kernel.anchor.base == "cudnn_convolution_relu"
    assert kernel.anchor.arg("bias") is not None
    assert [value.type.shape for value in kernel.graph.values] == [(1, 8, 4, 4), (8, 8, 1, 1), (8,)]


def test_what_cudnn_cannot_run_as_one_is_left_to_inductor(script: ModuleType):
    assert script.fused(parse(ADDED.replace("relu(", "sigmoid("))) is None
    other = ADDED.replace("other=%1) :", "other=%1, alpha=2) :")  # a scaled bias is none
    assert script.fused(parse(other)) is None


def test_the_table_adds_up(script: ModuleType):
    rows = [
        {"graph": PRODUCT, "inductor_us": 10.0, "templates_us": 8.0},
        {"graph": PRODUCT, "inductor_us": 10.0, "templates_us": 20.0},
        {"graph": str(convolution()), "inductor_us": 4.0, "templates_us": 3.0},
    ]
    assert script.table(rows, Cudnn(us=3.5)).splitlines()[2:] == [
        "| convolutions | float32 | 1 | 1 | 75% | 75.0% | 85.7% |",  # 3 of 3.5
        "| products | float32 | 2 | 1 | 140% | 90.0% | 90.0% |",
    ]
    row = {"graph": "g", "source": "m@1", "device_us": [0.0, 0.0, 5.0, 0.0, 0.0]}
    ends = (("inductor", "ok"), ("autotune", "ok"))
    assert script.paired([row | {"runner": runner, "status": status} for runner, status in ends]) == [
        {"source": "m@1", "inductor_us": 5.0, "templates_us": 5.0, "graph": "g"}
    ]
    assert script.paired([row | {"runner": "inductor", "status": "ok"}]) == []
