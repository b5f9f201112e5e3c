"""Arguments of the public functions: whatever is wrong is refused in one line that names the argument."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import costmodel
from costmodel import checks
from costmodel.capture.executable import capture_exactly
from costmodel.capture.frontends import WAYS
from costmodel.checks import checked
from costmodel.memory.checkpoint_plan import CheckpointPlan
from costmodel.planning.plan import Plan
from costmodel.prediction.named_models import WAYS as KNOWN_WAYS
from costmodel.profiles.profile import Profile
from tests.support.sample_trees import network

H200 = "nvidia-h200"
PLAN = Plan("m", "0" * 64, H200, "exact", (), "graph", (), {"plan": 1.0}, 0.0, "2")


class Uninitialised(nn.Module):
    def __init__(self) -> None:
        """Leaves out `super().__init__()`."""


class Holding(nn.Module):
    """A module that holds a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("held", tensor)


def special_tensors() -> Iterator[torch.Tensor]:
    """Tensors that are not dense."""
    dense = torch.eye(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse CSR, nested and quantized tensors warn of being prototypes
        yield dense.to_sparse()
        yield dense.to_sparse_csr()
        yield dense.to_sparse_csc()
        yield dense.to_sparse_bsr((2, 2))
        yield dense.to_mkldnn()
        yield torch.nested.nested_tensor([dense, dense[:2]])
        yield torch.nested.nested_tensor([dense, dense[:2]], layout=torch.jagged)
        yield torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8)


def deep() -> list[Any]:
    """A list 100,000 deep."""
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


SPECIAL = tuple(special_tensors())
DENSE = torch.empty(2, 4)
NOT_MODULES: list[Any] = [None, 3, "resnet50", nn.ReLU, torch.relu, DENSE, {}, Uninitialised(), *map(Holding, SPECIAL)]
NOT_INPUTS: list[Any] = [None, 3, "x", b"x", DENSE, np.zeros((2, 4)), {DENSE}, (x for x in "a"), deep(), {1: DENSE}]
NOT_INPUTS += [(np.zeros((2, 4)),), {"input": [np.zeros(3)]}, *((item,) for item in SPECIAL), {"input": SPECIAL[0]}]
NOT_TEXT: list[Any] = [3, b"x", 1.5, [], True, str]
NOT_NAMES: list[Any] = [*NOT_TEXT, ""]
NOT_FLAGS: list[Any] = [None, 0, 1, "yes", math.nan, bool]
NOT_NUMBERS: list[Any] = [None, "3", b"3", math.nan, 0, -1, -math.inf, True, 1j, [1], int]
NOT_PATHS: list[Any] = [None, 3, b"plan.json", "", "a\0b", 1.5, [], True]
NOT_HOSTS: list[Any] = ["", math.nan, math.inf, -1, 0, True, [], b"x", 1j]
NOT_SIZES: list[Any] = [0, -1, 1.0, 2.5, True, "3", math.nan, math.inf, [1], 10**30]
NOT_PLANS: list[Any] = [None, 3, "plan.json", {}, Plan]

WRONG: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "predict": (
        {"module": nn.ReLU(), "inputs": (DENSE,)},
        {
            "module": NOT_MODULES,
            "inputs": NOT_INPUTS,
            "hardware": NOT_NAMES,
            "model_name": NOT_TEXT,
            "check": NOT_FLAGS,
            "explain": NOT_FLAGS,
            "host": NOT_HOSTS,
            "shapes": [None, 3, "2x4", [3], [[0]], [["a"]], [[1.0]], [(2, True)]],
            "capture": [None, *NOT_NAMES, "eyes"],
            "batch_size": NOT_SIZES,
            "img_size": NOT_SIZES,
            "precision": [*NOT_NAMES, "float3"],
            "channels_last": NOT_FLAGS,
            "amp": [*NOT_NAMES, "float32"],
            "matmul_precision": [None, *NOT_NAMES, "low"],
            "cudnn_benchmark": NOT_FLAGS,
            "training": NOT_FLAGS,
            "optimizer": [*NOT_NAMES, "lion"],
            "loss": [3, "mean"],
        },
    ),
    "plan": (
        {"module": nn.ReLU(), "inputs": (DENSE,)},
        {
            "module": NOT_MODULES,
            "inputs": NOT_INPUTS,
            "hardware": NOT_NAMES,
            "model_name": NOT_TEXT,
            "strategy": [None, *NOT_NAMES, "best"],
            "calls": NOT_NUMBERS,
            "memory_limit": NOT_NUMBERS,
            "fork": NOT_FLAGS,
            "branch_rewrites": NOT_FLAGS,
            "check": NOT_FLAGS,
            "real": [3, "function"],
            "is_whole": NOT_FLAGS,
            "amp": [*NOT_NAMES, "float32"],
            "matmul_precision": [None, *NOT_NAMES, "low"],
            "cudnn_benchmark": NOT_FLAGS,
            "keep": NOT_FLAGS,
        },
    ),
    "explain_backend": ({"compiled": None}, {"compiled": [3, "resnet50", nn.ReLU(), DENSE]}),
    "analyze_memory": (
        {"module": nn.ReLU(), "inputs": (DENSE,)},
        {
            "module": NOT_MODULES,
            "inputs": NOT_INPUTS,
            "hardware": NOT_NAMES,
            "model_name": NOT_TEXT,
            "optimizer": [None, *NOT_NAMES, "sg"],
            "passes": [None, 3, "training", (), ["both"], [None]],
            "all_trainable": NOT_FLAGS,
            "check": NOT_FLAGS,
            "compiled": NOT_FLAGS,
            "real": [3, "function"],
            "is_whole": NOT_FLAGS,
            "amp": [*NOT_NAMES, "float32"],
        },
    ),
    "apply": (
        {"module": nn.ReLU().eval(), "plan": PLAN, "inputs": (DENSE,)},
        {
            "module": NOT_MODULES,
            "plan": [*NOT_PLANS, CheckpointPlan("m", (), 0, 0, 0.0)],
            "inputs": NOT_INPUTS,
            "check": NOT_FLAGS,
            "captured": [3, "x", nn.ReLU()],
        },
    ),
    "validate": (
        {"module": nn.ReLU().eval(), "inputs": (DENSE,)},
        {
            "module": NOT_MODULES,
            "inputs": [*NOT_INPUTS, {"input": DENSE}],
            "plan": NOT_PLANS[1:],
            "others": [3, [PLAN], {"a": None}, {3: PLAN}],
            "hardware": NOT_NAMES,
            "model_name": NOT_TEXT,
            "modes": [None, "default", ["fast"], [None], 3],
            "seconds": [*NOT_NUMBERS, math.inf],
            "host": NOT_HOSTS,
            "layers": NOT_FLAGS,
            "amp": [*NOT_NAMES, "float32"],
            "matmul_precision": [None, *NOT_NAMES, "low"],
            "cudnn_benchmark": NOT_FLAGS,
        },
    ),
    "checkpointed": (
        {"module": nn.ReLU(), "plan": CheckpointPlan("m", (), 0, 0, 0.0)},
        {"module": NOT_MODULES, "plan": [*NOT_PLANS, PLAN]},
    ),
    "load_model": (
        {"spec": "alexnet"},
        {
            "spec": [None, *NOT_TEXT],
            "batch_size": NOT_SIZES,
            "img_size": NOT_SIZES,
            "precision": [*NOT_NAMES, "float3"],
            "channels_last": NOT_FLAGS,
        },
    ),
    "load_profile": ({}, {"name": [None, *NOT_TEXT]}),
    "render": (
        {"reports": []},
        {
            "reports": [None, 3, "report", [None], PLAN, {}],
            "format": [None, *NOT_NAMES, "xml"],
            "layers": [*NOT_NAMES, "some"],
            "width": NOT_SIZES[:-1],
            "color": NOT_FLAGS,
            "unicode": NOT_FLAGS,
            "depth": NOT_SIZES[:-1],
            "sort": [*NOT_NAMES, "shape"],
            "top": NOT_SIZES[:-1],
            "facts": [None, 3, "facts"],
        },
    ),
    "Report.to_frame": ({"self": network()}, {"table": [None, *NOT_NAMES, "rows"]}),
    "Plan.load": ({}, {"path": NOT_PATHS}),
    "Plan.save": ({"self": PLAN}, {"path": NOT_PATHS}),
    "CheckpointPlan.load": ({}, {"path": NOT_PATHS}),
    "CheckpointPlan.save": ({"self": CheckpointPlan("m", (), 0, 0, 0.0)}, {"path": NOT_PATHS}),
}
"""Public function -> arguments that are right, and for each argument values that are wrong."""


SPELLED_OUT = {"batch_size": "batch size", "img_size": "image size"}
"""Argument that is an option of the command line too -> its name in messages."""


def function_of(name: str) -> Callable[..., Any]:
    """The public function of that name."""
    first, _, method = name.partition(".")
    found = getattr(costmodel, first)
    return getattr(found, method) if method else found


def wrong_values() -> Iterator[Any]:
    """Each wrong value with its function and argument."""
    for name, (_, arguments) in WRONG.items():
        for argument, values in arguments.items():
            for index, value in enumerate(values):
                yield pytest.param(name, argument, value, id=f"{name}-{argument}-{index}-{type(value).__name__}")


@pytest.mark.parametrize(("name", "argument", "value"), [*wrong_values()])
def test_a_wrong_value_is_refused_by_the_arguments_name(name: str, argument: str, value: Any) -> None:
    with pytest.raises(costmodel.CostmodelError) as error:
        function_of(name)(**WRONG[name][0] | {argument: value})
    message = str(error.value)
    assert argument in message or SPELLED_OUT.get(argument, argument) in message
    assert "\n" not in message
    assert len(message) < 400


def test_every_argument_of_every_public_function_is_in_the_table() -> None:
    """Every one, that is, but of functions without arguments, of records and of errors."""
    without = {"list_profiles", "__version__", "CostmodelError", "Report", "Validation"}
    without |= {"LayerPrediction", "ModePrediction", "Plan", "CheckpointPlan"}
    assert {name for name in WRONG if "." not in name} == set(dir(costmodel)) - without
    for name, (_, arguments) in WRONG.items():
        assert arguments.keys() == inspect.signature(function_of(name)).parameters.keys() - {"self", "cls"}, name


def test_torchscript_is_refused_by_every_function_of_a_module() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        script = torch.jit.trace(nn.Linear(4, 4).eval(), DENSE)
    for name, (given, arguments) in WRONG.items():
        if "module" in arguments:
            with pytest.raises(costmodel.CostmodelError, match=r"module is TorchScript .*; give the nn.Module"):
                function_of(name)(**given | {"module": script})


def test_right_values_pass() -> None:
    """Numbers of NumPy, infinity where nothing bounds a wish, paths as text, empty sequences."""
    assert checks.positive(math.inf) is checks.positive(np.float32(0.5)) is checks.count(np.int64(3)) is None
    assert checks.host(1) is checks.host("a") is checks.host(0.8) is checks.some_of(("a",))(()) is None
    exact = capture_exactly(nn.ReLU().eval(), (DENSE,), "m")
    plan = costmodel.plan(nn.ReLU().eval(), (DENSE,), hardware="intel-xeon-16-threads")
    assert torch.equal(costmodel.apply(nn.ReLU().eval(), plan, (DENSE,), captured=exact)(DENSE - 1), (DENSE - 1).relu())
    assert isinstance(costmodel.load_profile(H200), Profile)


def test_the_ways_of_capture_are_those_that_there_are() -> None:
    assert (*WAYS, "dynamo") == KNOWN_WAYS


def test_a_function_with_an_argument_that_has_no_rule_cannot_be_made() -> None:
    def two(a: int, b: int) -> int:
        return a + b

    with pytest.raises(TypeError, match="needs a rule for each argument"):
        checked(a=checks.count)(two)
    assert checked(a=checks.count, b=checks.anything)(two)(1, -1) == 0


def test_values_are_shown_in_a_few_characters() -> None:
    assert checks.shown("a" * 1000) == "'" + "a" * 59 + "..."
    assert checks.shown(10**5000) == "an integer that large"
    assert checks.shown("a\nb") == r"'a\nb'"


def test_a_shown_value_is_text_a_number_or_the_name_of_its_type() -> None:
    shown = {None: "None", 1.5: "1.5", b"x": "b'x'", "x" * 58: f"'{'x' * 58}'", int: "the class int"}
    assert {value: checks.shown(value) for value in shown} == shown
    assert checks.shown("x" * 59) == "'" + "x" * 59 + "..."  # 61 characters with its quotes
    assert checks.shown([1]) == "a value of type list"
    assert checks.shown(-(10**60)) == "an integer that large"
    assert checks.shown(10**59) == "1" + "0" * 59


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (checks.count, [1, 10**9], [0, -1, True, 1.0]),
        (checks.whole, [0, -5], [False, 1.0, "1"]),
        (checks.positive, [1e-9, math.inf], [0, -1e-9, True, math.nan]),
        (checks.positive_finite, [1e-9, 1e300], [0, math.inf, True, math.nan]),
        (checks.host, ["a", 1e-9], ["", 0, math.inf, True]),
        (checks.profile_name, ["a"], ["", None]),
        (checks.path, ["a", Path("a")], ["", "a\0b", b"a", None]),
        (checks.flag, [True, False], [1, None]),
        (checks.shape, [(), [1, 2]], [[1, 0], "12", b"12", bytearray(b"12"), 3]),
        (checks.optional(checks.count), [None, 1], [0, "None"]),
        (checks.one_of(("a", "b")), ["a", "b"], ["c", "", None, ["a"]]),
        (checks.some_of(("a", "b"), at_least=1), [["a"], ("b", "a")], [[], "a", ["a", "c"]]),
        (checks.each(checks.count, "sizes", at_least=2), [[1, 2]], [[], [1]]),
        (checks.named(checks.count, "counts by name"), [{}, {"a": 1}], [{"a": 0}, {1: 1}, {"a": 1, "b": "c"}, [1]]),
    ],
)
def test_a_rule_accepts_and_refuses(rule: checks.Rule, right: list[Any], wrong: list[Any]) -> None:
    assert [value for value in right if rule(value) is not None] == []
    assert [value for value in wrong if not rule(value)] == []


def test_a_fault_says_what_was_wanted_and_what_was_given() -> None:
    assert checks.count(-1) == "must be a whole number above 0, not -1"
    assert checks.one_of(("a", "b"))("c") == "must be one of a, b, not 'c'"
    sizes = checks.each(checks.count, "sizes", at_least=1)
    assert sizes(3) == "must be a sequence of sizes, not 3"
    assert sizes([]) == "must be a sequence of sizes, and is empty"
    assert sizes([1, 2.5, "x"]) == "must be a sequence of sizes; 2.5 is not one"


def test_arguments_are_checked_by_name_and_defaults_are_not() -> None:
    class Counter:
        @checked(error=costmodel.CostmodelError, first=checks.count, second=checks.count)
        def add(self, first: int, second: int = -1) -> int:
            return first + second

    assert Counter().add(3) == 2
    assert Counter().add(second=1, first=1) == 2
    with pytest.raises(costmodel.CostmodelError, match=r"^second must be a whole number above 0, not -1$"):
        Counter().add(3, -1)
    assert Counter.add.__name__ == "add"
    assert Counter.add.__dict__["rules"] == {"first": checks.count, "second": checks.count}
    with pytest.raises(TypeError, match="needs a rule for each argument"):
        checked(first=checks.count, other=checks.count)(lambda first: first)
