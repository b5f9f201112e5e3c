"""Cases of kernels that only a training step runs, and of whole training steps."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from collectors.processes.run_graph import arguments_of
from collectors.whole_models.training_model import allocated_bytes, build_training
from collectors.workloads import backward, catalog
from collectors.workloads.cases import UnitCase
from collectors.workloads.model_cases import TRAINING_MODELS, TRAINING_VARIANTS, case_key, main, training_cases
from collectors.workloads.model_like_convolutions import sample as convolutions
from costmodel.errors import RequestError
from costmodel.execution.fx_module import build_module
from costmodel.ir import operators, parse

SPEC = backward.StepSpec("squeezenet1_1", 1, None, False, "adam", 64)
CASE = {"model": "resnet18", "batch_size": 2, "precision": "float32", "layout": "nchw", "img_size": 32}


@pytest.fixture(scope="module")
def cases() -> list[UnitCase]:
    """Cases of a small model's step."""
    return backward.capture_cases(SPEC)


def test_cases_of_a_step_are_kernels_of_training_alone(cases: list[UnitCase]):
    groups = Counter(map(backward.stratum, cases))
    assert set(groups) == {"conv_backward", "aten_backward", "foreach"}
    assert groups["foreach"] == 7  # operators of Adam
    # 26 convolutions: by input and by weight each, but for the first one's input
    assert groups["conv_backward"] == 2 * 26 - 1
    assert {case.source for case in cases} == {"squeezenet1_1@1 training"}


def test_a_cases_graph_can_be_run(cases: list[UnitCase]):
    for group in ("conv_backward", "aten_backward", "foreach"):
        graph = parse(next(case.graph for case in cases if backward.stratum(case) == group))
        results = build_module(graph)(*arguments_of(graph, "cpu"))
        kinds = [graph.type_of(ref).shape for ref in graph.outputs]
        assert [tuple(result.shape) for result in results] == kinds


def test_a_sample_has_a_share_of_each_kind(cases: list[UnitCase]):
    chosen = backward.sample(cases, 60)
    assert chosen == backward.sample(list(reversed(cases)), 60)
    groups = Counter(map(backward.stratum, chosen))
    assert groups["conv_backward"] == round(0.3 * 60) + round(0.15 * 60)  # of models, and of random layers
    assert groups["foreach"] == round(0.02 * 60)


def test_random_gradients_are_of_their_convolutions():
    for by_weight in (False, True):
        graph = parse(convolutions(1, 3)[0].graph)
        made = backward.gradient_graph(graph, by_weight).verify()
        assert operators.flops(made, made.ops[0]) == operators.flops(graph, graph.ops[0])
        shape = made.type_of(made.outputs[0]).shape
        assert shape == {value.name: value.type.shape for value in graph.values}["p0" if by_weight else "a0"]


def test_specs_have_every_model_eager_and_some_compiled():
    found = backward.specs(["a", "b"], ["a"])
    assert Counter((spec.model, spec.compiles) for spec in found) == {
        ("a", True): len(backward.COMPILED_SPECS),
        ("a", False): backward.EAGER_SPECS,
        ("b", False): backward.EAGER_SPECS,
    }
    assert found == backward.specs(["a", "b"], ["a"])


def test_the_workload_is_none_on_a_cpu_unless_quick():
    assert catalog.MAKERS["backward"]("cpu", False, time.monotonic() + 60) == []


def test_each_turn_of_training_cases_has_every_model():
    found = training_cases(("a", "b", "c"))
    assert len(found) == 3 * len(TRAINING_VARIANTS) == len({case_key(case) for case in found})
    for first in range(0, len(found), 3):
        assert [case["model"] for case in found[first : first + 3]] == ["a", "b", "c"]
    assert case_key(found[1]) == "b@32 float32 nchw amp=float16 training momentum"
    assert len(TRAINING_MODELS) >= 25


def test_training_cases_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["model_cases", str(tmp_path / "cases.json"), "--training"])
    main()
    assert json.loads((tmp_path / "cases.json").read_text()) == training_cases()


def test_a_step_trains_the_module_and_leaves_no_gradient_behind():
    model = build_training({**CASE, "optimizer": "momentum"}, "cpu")
    assert model.module.training
    step = model.call(model.module)
    first, mean = step(), model.module.bn1.running_mean.clone()
    assert first.shape == ()
    second = step()
    assert not torch.equal(model.module.bn1.running_mean, mean)
    assert second.item() == pytest.approx(first.item(), rel=0.05)  # a learning rate of next to nothing
    assert model.step is not None
    assert all("momentum_buffer" in state for state in model.step.optimizer.state.values())
    assert allocated_bytes("cpu") == 0


def test_a_step_without_a_rule_is_one_line():
    with pytest.raises(RequestError, match="unknown optimizer 'lion'; choose one of sgd, momentum, adam, adamw"):
        build_training({**CASE, "optimizer": "lion"}, "cpu")
