"""Prepared parameters of several programs: shared while one lives, of the present weights, and gone with the last."""

from __future__ import annotations

import gc

import pytest
import torch

from costmodel.execution import shared_parameters
from costmodel.execution.shared_parameters import prepare_once
from costmodel.ir import parse

DOUBLED = "graph {} {{\n  param %w: float32[3]\n  %0 = add(self=%w, other=%w) : float32[3]\n  return %0\n}}"


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    monkeypatch.setattr(shared_parameters, "_prepared", {})


def doubled(weight: torch.Tensor, name: str = "a") -> torch.Tensor:
    graph = parse(DOUBLED.format(name))
    with torch.no_grad():
        (made,) = prepare_once(graph, [weight], torch.device("cpu"), lambda: [weight + weight])
    return made


def test_of_the_same_weights_they_are_computed_once():
    weight = torch.ones(3)
    first = doubled(weight)
    assert doubled(weight.detach(), "b") is first  # another tensor of the same memory
    assert doubled(torch.ones(3)) is not first


def test_new_values_are_computed_anew():
    weight = torch.ones(3)
    first = doubled(weight)
    weight.add_(1)
    assert doubled(weight).tolist() == [4.0] * 3
    assert first.tolist() == [2.0] * 3


def test_another_preparation_is_another_result():
    weight = torch.ones(3)
    first = doubled(weight)
    graph = parse(DOUBLED.format("a").replace("add(", "mul("))
    (other,) = prepare_once(graph, [weight], torch.device("cpu"), lambda: [weight * weight])
    assert first.tolist() == [2.0] * 3
    assert other.tolist() == [1.0] * 3


def test_nothing_is_kept_without_a_program():
    weight = torch.ones(3)
    doubled(weight)
    gc.collect()
    assert shared_parameters._prepared == {}


def test_memory_of_freed_weights_is_not_taken_for_them():
    """An address is free for other weights only when no program has results of the earlier ones."""
    first = doubled(torch.full((3,), 5.0))
    for value in range(50):
        assert doubled(torch.full((3,), float(value))).tolist() == [2.0 * value] * 3
    assert first.tolist() == [10.0] * 3


def test_tensors_of_inference_mode_are_never_shared():
    """They do not count their changes."""
    with torch.inference_mode():
        weight = torch.ones(3)
    first = doubled(weight)
    assert doubled(weight) is not first
