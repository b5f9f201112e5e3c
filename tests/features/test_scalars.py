"""Scalars that features are made of, by hand."""

from __future__ import annotations

import math

import pytest

from costmodel.features import scalars
from costmodel.ir import Op, Ref, TensorType, Value
from costmodel.ir.types import Graph

KIND = TensorType("float32", (2, 3))


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (8, 0), (16, 0), (4, 1), (12, 1), (2, 2), (6, 2), (1, 3), (7, 3)]
)
def test_a_length_is_odd_by_each_power_of_two_that_it_misses(size: int, expected: float):
    assert scalars.odd(size) == expected


@pytest.mark.parametrize(
    ("value", "default", "expected"),
    [
        (3, 0.0, 3.0),
        (2.5, 0.0, 2.5),
        ((4, 5), 0.0, 4.0),
        ((), 7.0, 7.0),
        (None, 7.0, 7.0),
        ("x", 1.0, 1.0),
        (True, 0.0, 1.0),
    ],
)
def test_an_argument_is_a_number_or_the_first_of_several(value: object, default: float, expected: float):
    assert scalars.number(value, default) == expected


def test_the_largest_of_an_argument():
    assert [scalars.largest(value) for value in ((1, 3, 2), (), 5, None)] == [3.0, 0.0, 5.0, 0.0]


def test_logarithms_sides_and_elongations():
    assert [scalars.log2_of(value) for value in (0, 1, 3, 1023)] == [0.0, 1.0, 2.0, 10.0]
    assert scalars.side((3, 3)) == pytest.approx(3.0)
    assert scalars.side((1, 9)) == pytest.approx(3.0)
    assert scalars.side((2, 4, 8)) == pytest.approx(4.0)
    assert [scalars.elongation(sizes) for sizes in ((3, 3), (1, 4), (8, 2))] == [0.0, 2.0, -2.0]


def test_the_first_named_tensor_is_the_operand_else_the_result():
    value = Value("x", KIND)
    op = Op("0", "relu", (("self", Ref("x")), ("other", 3)), (TensorType("float32", (6,)),))
    graph = Graph("g", (value,), (op,), (Ref("0"),))
    assert scalars.operand(graph, op, "input", "self") == KIND
    assert scalars.operand(graph, op, "other", "weight") == op.type
    assert scalars.operand(graph, op) == op.type


def test_tiles_of_a_matmul_by_hand():
    """130 rows and 65 columns are 3 x 2 tiles of 64 and 2 x 1 of 128, 11 times over: 66 and 22 for 20."""
    found = scalars.tiling(rows=130, columns=65, inner=96, batch=11, multiprocessors=20)
    assert found["log_waves_64"] == pytest.approx(math.log2(3.3))
    assert found["wave_loss_64"] == pytest.approx(4 / 3.3)
    assert found["log_waves_128"] == pytest.approx(math.log2(1.1))
    assert found["wave_loss_128"] == pytest.approx(2 / 1.1)
    assert (found["n_odd"], found["k_odd"]) == (3.0, 0.0)
    assert (found["n_by_32"], found["k_by_32"]) == (0.0, 1.0)
    sizes = [found[f"log_{name}"] for name in ("m", "n", "k", "products")]
    assert sizes == [math.log2(size + 1) for size in (130, 65, 96, 11)]
    few = scalars.tiling(64, 64, 1, batch=20, multiprocessors=20)
    assert (few["log_waves_64"], few["wave_loss_64"]) == (0.0, 1.0)


def test_a_window_is_the_product_of_its_sides():
    def pooled(size: object) -> int:
        return scalars.window(Op("0", "max_pool2d", (("kernel_size", size),), (KIND,)))  # type: ignore[arg-type]

    assert [pooled((3, 2)), pooled((3,)), pooled(()), pooled(None), pooled(3)] == [6, 3, 1, 0, 0]
