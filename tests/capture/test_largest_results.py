"""Largest results of calls whose size depends on data, and modules that a pass does not reach, by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from costmodel.capture.constant_values import Constants
from costmodel.capture.data_dependence import (
    NO_LINE,
    lacks_data,
    largest,
    not_reached,
    plain_name,
    source_line_in,
)
from costmodel.capture.read_values import ReadValues, has_sized_result

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


MASK = meta(4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("func", "args", "shape", "dtype"),
    [
        (aten.nonzero.default, (meta(2, 3),), (6, 2), torch.int64),
        (aten.nonzero.default, (meta(),), (1, 0), torch.int64),
        (aten.masked_select.default, (meta(4, 1), meta(3, dtype=torch.bool)), (12,), torch.float32),
        (aten.index.Tensor, (meta(4, 5), [MASK]), (4, 5), torch.float32),
        (aten.index.Tensor, (meta(4, 5), [meta(4, 5, dtype=torch.bool)]), (20,), torch.float32),
        (aten.index.Tensor, (meta(3, 4, 5), [None, MASK]), (3, 4, 5), torch.float32),
        (aten.index.Tensor, (torch.ones(4, 5), [MASK]), (4, 5), torch.float32),
    ],
)
def test_everything_may_be_selected(func: Any, args: tuple[Any, ...], shape: tuple[int, ...], dtype: torch.dtype):
    found = largest(func, args)
    assert found is not None
    assert (tuple(found.shape), found.dtype, found.is_meta) == (shape, dtype, True)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.relu.default, (meta(2),)),
        (aten.nonzero.default, (torch.ones(2),)),
        (aten.index.Tensor, (meta(4, 5), [meta(2, dtype=torch.int64)])),
        (aten.index.Tensor, (torch.ones(4), [torch.ones(4, dtype=torch.bool)])),
    ],
)
def test_other_calls_have_one_size(func: Any, args: tuple[Any, ...]):
    assert largest(func, args) is None


@pytest.mark.parametrize(
    ("func", "args", "sized"),
    [
        (aten.nonzero.default, (meta(2),), True),
        (aten.masked_select.default, (meta(2), MASK), True),
        (aten.index.Tensor, (meta(4), [MASK]), True),
        (aten.index.Tensor, (meta(4), [None, meta(2, dtype=torch.uint8)]), True),
        (aten.index.Tensor, (meta(4), [meta(2, dtype=torch.int64)]), False),
        (aten.index.Tensor, (meta(4),), False),
        (aten.relu.default, (meta(2),), False),
    ],
)
def test_sizes_that_depend_on_values(func: Any, args: tuple[Any, ...], sized: bool):
    assert has_sized_result(func, args) is sized


def test_values_are_taken_in_the_order_in_which_they_were_read():
    values = ReadValues([("item", 3)])
    values.add("nonzero", (2, 1))
    assert len(values) == 2
    with pytest.raises(LookupError, match="the real run has no nonzero here"):
        values.take("nonzero")
    assert values.take("item") == 3
    assert values.take("nonzero") == (2, 1)
    with pytest.raises(LookupError, match="the real run has no item here"):
        values.take("item")
    assert values.rewound().take("item") == 3


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (RuntimeError("Tensor.item() cannot be called on meta tensors"), True),
        (TypeError("can't convert meta device type tensor to numpy"), True),
        (RuntimeError("sizes do not match"), False),
        (ValueError("meta tensor"), False),
    ],
)
def test_torchs_errors_of_missing_values(error: Exception, lacks: bool):
    assert lacks_data(error) is lacks


def test_modules_that_did_not_run_are_named_at_their_outermost():
    net = nn.ModuleDict({"stem": nn.Linear(2, 2), "head": nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "act": nn.ReLU()})
    net["part"] = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    paths = {module: path for path, module in net.named_modules()}
    called = {net, net["stem"], net["part"], net["part"][0]}
    assert not_reached(paths, called) == ("head", "part.1")
    assert not_reached(paths, set(paths)) == ()
    assert not_reached(paths, {net}) == ("stem", "head", "part")


def test_names_are_words():
    assert plain_name("a b,c\n\td") == "a_b_c__d"


def test_the_innermost_line_of_a_model_is_shown_below_the_deepest_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(tmp_path / "src"), *sys.path])
    lines = [f'File "{tmp_path}/run.py", line 3', f'File "{tmp_path}/src/my net/model.py", line 17']
    within = [f'File "{torch.__file__}", line 9', f'File "{Path(sys.modules["re"].__file__ or "")}", line 5']
    assert source_line_in("\n".join([*lines, *within])) == "my_net/model.py:17"
    assert source_line_in("\n".join(lines[:1])) == "run.py:3"
    assert source_line_in("\n".join(within)) == NO_LINE == "?:0"
    assert source_line_in('File "/nowhere/else/net.py", line 2') == "net.py:2"


def test_constants_follow_calls_that_depend_on_no_data():
    constants = Constants()
    grid, one = meta(3, dtype=torch.int64), meta(3, dtype=torch.int64)
    constants.follow(aten.arange.default, (3,), {"device": torch.device("meta")}, grid)
    assert constants.value_of(grid).tolist() == [0, 1, 2]
    constants.follow(aten.add.Tensor, (grid, 2), {}, one)
    assert constants.value_of(one).tolist() == [2, 3, 4]
    unknown, total = meta(3), meta(3)
    constants.follow(aten.add.Tensor, (grid, unknown), {}, total)
    assert constants.value_of(total) is None
    real = torch.ones(2)
    assert constants.value_of(real) is real


def test_a_write_of_unknown_values_loses_a_constant():
    constants, grid = Constants(), meta(3, dtype=torch.int64)
    constants.remember(grid, torch.arange(3))
    constants.follow(aten.add_.Tensor, (grid, meta(3)), {}, grid)
    assert constants.value_of(grid) is None
    constants.remember(grid, torch.zeros(3))
    assert constants.value_of(grid).tolist() == [0.0] * 3


def test_large_constants_are_not_computed():
    for count, known in ((1 << 20, True), ((1 << 20) + 1, False)):
        constants, made = Constants(), meta(count)
        constants.follow(aten.zeros.default, ([count],), {"device": torch.device("meta")}, made)
        assert (constants.value_of(made) is not None) is known
