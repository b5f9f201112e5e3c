"""The closed list of operators: each entry is looked up in torch, and its schema says that it is pure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel.capture.constant_values import Constants
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError
from costmodel.ir.op_table_training import TRAINING_NAMES
from costmodel.ir.operators import TABLE
from costmodel.ir.pure_operators import COMPUTED, DETECTION, PURE, RANDOM, TEXTS, WORDS, WRITES

ATEN = sorted(PURE - DETECTION)
_ELEMENT = re.compile(r"^(?:Optional|List)\[(.+)\]$")
DATA = {"Tensor", "int", "float", "bool", "number", "complex", "Device", "str", "Generator"}
"""Types of arguments; torch's schemas call dtypes, layouts and memory formats `int`."""


def operator_of(name: str) -> torch._ops.OpOverload:
    """The operator that a name such as `aten.add.Tensor` stands for."""
    _, packet, overload = name.split(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload)
    return found


def kind_of(argument: torch.Argument) -> str:
    """The type of an argument or of its items."""
    kind = str(argument.type)
    while match := _ELEMENT.match(kind):
        kind = match[1]
    return kind


def offences(name: str) -> list[str]:
    """Arguments of an operator that are neither tensors nor numbers, or are written without being the first."""
    arguments = operator_of(name)._schema.arguments
    packet, kinds = name.split(".")[1], {found.name: kind_of(found) for found in arguments}
    foreign = [key for key, kind in kinds.items() if kind not in DATA or (kind == "Generator" and name not in RANDOM)]
    texts = [
        key for key, kind in kinds.items() if kind == "str" and f"{packet}.{key}" not in WORDS.keys() | TEXTS.keys()
    ]
    outs = [found.name for found in arguments if found.is_out]
    writing = packet.endswith("_") and not packet.endswith("__")
    written = [found.name for found in arguments if found.alias_info and found.alias_info.is_write]
    unsaid = written != ([arguments[0].name] if writing else [])
    return [*foreign, *texts, *outs, *(written if unsaid else [])]


class TestPureOperators:
    def test_each_is_a_function_of_tensors_and_numbers(self) -> None:
        """In-place forms write into their first argument; nothing else is written, opened or drawn from."""
        assert {name: found for name in ATEN if (found := offences(name))} == {}
        assert offences("aten.from_file.default") == ["filename"]
        assert offences("aten.add.out") == ["out", "out"]
        assert offences("aten.set_.source_Storage") == ["source"]

    def test_writes_are_the_in_place_forms(self) -> None:
        assert all(operator_of(name)._schema.is_mutable for name in WRITES)
        assert not any(operator_of(name)._schema.is_mutable for name in COMPUTED - WRITES)

    def test_is_not_derived_from_what_is_registered(self) -> None:
        """An operator that torch or a package has, or gets later, is on it by name or not at all."""
        assert {"aten.from_file.default", "aten.from_file.out", "aten.set_.source_Storage"}.isdisjoint(PURE)
        assert {name.partition(".")[0] for name in PURE} == {"aten", "torchvision"}
        assert all(name.count(".") == 2 for name in PURE)

    def test_holds_what_the_operator_table_knows(self) -> None:
        """Except operators that costmodel writes itself, and torchvision's, which go by their own names there."""
        named = {name.split(".")[1] for name in PURE}
        known = {name for name, row in TABLE.items() if row.supported and name not in TRAINING_NAMES}
        missing = known - named
        assert {name for name in missing if not name.startswith("torchvision_")} == {
            *("concat_in_place", "cudnn_convolution_relu", "cudnn_convolution_add_relu"),
            *("_weight_norm_interface", "_embedding_bag_forward_only", "_neg_view"),
            *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "cudnn_grid_sampler"),
        }
        assert {name.removeprefix("torchvision_") for name in missing if name.startswith("torchvision_")} <= named

    def test_nothing_random_is_computed_from_constants(self) -> None:
        assert COMPUTED.isdisjoint(RANDOM)
        assert not any(torch.Tag.nondeterministic_seeded in operator_of(name).tags for name in COMPUTED)


class Calling(nn.Module):
    """A module whose forward pass calls an operator on a tensor of the CPU, or on no tensor."""

    def __init__(self, call: object) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.call()  # type: ignore[operator, no-any-return]


class TestWhatACaptureRuns:
    def test_no_file_is_opened(self, tmp_path: Path) -> None:
        module = Calling(lambda: torch.from_file(str(tmp_path / "new"), shared=True, size=2))
        with pytest.raises(CaptureError, match=r"Calling calls aten.from_file.default, which is not run"):
            capture(module, (torch.zeros(2),))
        assert not (tmp_path / "new").exists()

    def test_an_operator_of_a_package_is_not_run(self, tmp_path: Path) -> None:
        """On constants too, it is asked for the shape of its result alone."""
        library = torch.library.Library("costmodel_constants", "DEF")
        library.define("touch(Tensor x) -> Tensor")
        library.impl("touch", lambda x: (tmp_path / "new").touch() or x.clone(), "CPU")
        library.impl("touch", torch.empty_like, "Meta")
        touch = torch.ops.costmodel_constants.touch
        graph = capture(Calling(lambda: touch(torch.ones(2))), (torch.zeros(2),))
        assert "costmodel_constants_touch" in [op.op for op in graph.ops]
        assert not (tmp_path / "new").exists()

    def test_constants_follow_listed_operators_alone(self) -> None:
        constants, ones = Constants(), torch.ones(3, device="meta")
        constants.follow(torch.ops.aten.ones.default, ([3],), {"device": ones.device}, ones)
        total = ones.sum()
        constants.follow(torch.ops.aten.sum.default, (ones,), {}, total)
        assert constants.value_of(total) == 3
        product = ones.dot(ones)
        constants.follow(torch.ops.aten.dot.default, (ones, ones), {}, product)
        assert constants.value_of(product) is None
