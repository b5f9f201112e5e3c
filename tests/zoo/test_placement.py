"""Precision and layout of a user's model: its own unless another is requested, and never that of complex numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from costmodel import zoo
from costmodel.cli import main
from costmodel.errors import RequestError
from costmodel.zoo.placement import as_written, is_compiled, moved, moved_inputs, own_precision
from costmodel.zoo.request import PRECISIONS, Request
from tests.support.wrapped_tensors import Scaled

KINDS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64),
    *(torch.complex128, torch.int8, torch.uint8, torch.int64, torch.bool),
)
CONVERTED = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
META = torch.device("meta")


def holding(kinds: list[torch.dtype]) -> nn.Module:
    """Module with a buffer or, of floating and complex numbers, every second time a parameter of each dtype."""
    module = nn.Module()
    for index, kind in enumerate(kinds):
        tensor = torch.zeros(2, 3, dtype=kind)
        if index % 2 and (kind.is_floating_point or kind.is_complex):
            module.register_parameter(f"t{index}", nn.Parameter(tensor, requires_grad=False))
        else:
            module.register_buffer(f"t{index}", tensor)
    return module


@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    precision=st.none() | st.sampled_from(sorted(PRECISIONS)),
    on_meta=st.booleans(),
)
def test_a_precision_converts_real_floating_point_numbers_only(
    kinds: list[torch.dtype], precision: str | None, on_meta: bool
) -> None:
    request = Request(precision=precision)
    module = moved(holding(kinds), META if on_meta else torch.device("cpu"), request)
    expected = [PRECISIONS[precision] if precision and kind in CONVERTED else kind for kind in kinds]
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    assert [held[f"t{index}"].dtype for index in range(len(kinds))] == expected
    assert {tensor.is_meta for tensor in held.values()} == {on_meta}
    inputs = moved_inputs({"x": [torch.zeros(2, dtype=kind) for kind in kinds], "flag": True}, request)
    assert [tensor.dtype for tensor in inputs["x"]] == expected
    assert inputs["flag"] is True


@pytest.mark.parametrize("kind", sorted(CONVERTED, key=str))
@pytest.mark.parametrize("inputs", ["", ", torch.zeros(2, 3, 8, 8, dtype=KIND)"])
def test_a_users_model_keeps_its_precision_and_gets_images_in_it(
    kind: torch.dtype, inputs: str, tmp_path: Path
) -> None:
    text = f"import torch\nKIND = {kind}\ndef build(): return torch.nn.Conv2d(3, 4, 1).to(KIND){inputs}\n"
    (tmp_path / "net.py").write_text(text)
    loaded = zoo.load(f"{tmp_path}/net.py:build")
    assert {tensor.dtype for tensor in [*loaded.module.parameters(), *loaded.inputs]} == {kind}
    converted = zoo.load(f"{tmp_path}/net.py:build", precision="float16")
    assert {tensor.dtype for tensor in [*converted.module.parameters(), *converted.inputs]} == {torch.float16}


def test_a_model_of_a_library_is_in_float32_whatever_the_default_dtype_is() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        loaded = zoo.load("alexnet")
    finally:
        torch.set_default_dtype(before)
    assert {tensor.dtype for tensor in [*loaded.module.parameters(), *loaded.inputs]} == {torch.float32}


def test_the_own_precision_is_that_of_the_first_number_that_has_one() -> None:
    assert own_precision(nn.ReLU()) is torch.float32
    assert own_precision(holding([torch.int8, torch.complex64, torch.float16])) is torch.float16


def test_tensors_that_wrap_others_keep_theirs() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    weight = Scaled.of(torch.ones(4, 4))
    module[1].weight = nn.Parameter(weight, requires_grad=False)
    with pytest.raises(RequestError, match=r"1\.weight \(Scaled\) keeps its own precision, which --precision float16"):
        moved(module, META, Request(precision="float16"))
    same = moved(module, META, Request(channels_last=True))
    assert isinstance(same[1].weight, Scaled)
    assert same[1].weight.held.dtype is torch.int8


def test_a_default_dtype_is_that_of_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import torch\nDEFAULT\ndef build(): return torch.nn.Conv2d(3, 4, 1)\n"
    (tmp_path / "half.py").write_text(text.replace("DEFAULT", "torch.set_default_dtype(torch.bfloat16)"))
    (tmp_path / "net.py").write_text(text.replace("DEFAULT", ""))
    specs = [f"{tmp_path}/{name}.py:build" for name in ("half", "net")]
    assert main(["predict", *specs, "-q", "--format", "json"]) == 0
    found = [report["precision"] for report in json.loads(capsys.readouterr().out)]
    assert found == ["bfloat16", "float32"]


class TestCompiledModules:
    """Modules that a user's code has given to torch.compile are taken as they were written."""

    def test_the_module_within(self):
        module = nn.Linear(2, 2)
        assert as_written(torch.compile(module)) is module
        assert is_compiled(torch.compile(module))
        assert not is_compiled(module)

    def test_parts_compiled_in_place_no_longer_are(self):
        module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        module.compile()
        module[0].compile()
        assert as_written(module) is module
        assert module._compiled_call_impl is module[0]._compiled_call_impl is None

    @pytest.mark.parametrize("made", ["torch.compile(net())", "(torch.compile(net()), torch.ones(2, 4))", "in_place()"])
    def test_on_the_command_line(self, made: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        text = f"""import torch
def net(): return torch.nn.Conv2d(3, 4, 1) if "ones" not in {made!r} else torch.nn.Linear(4, 4)
def in_place():
    module = net()
    module.compile()
    return module
def build(): return {made}
"""
        (tmp_path / "net.py").write_text(text)
        assert main(["predict", f"{tmp_path}/net.py:build", "-q", "--format", "json", "--layers", "none"]) == 0
        assert json.loads(capsys.readouterr().out)["graphs"]["count"] == 1
