"""Peaks of a training step by hand, where gradients are passed on, added up and summed to smaller shapes."""

from __future__ import annotations

import pytest

from costmodel.ir import Graph, parse
from costmodel.memory.capacity import eager_bytes, shortage
from costmodel.memory.peaks import OPTIMIZERS, Peak, inference_peak, live_bytes, training_peak
from costmodel.memory.saved_tensors import saved_tensors

GIB = 2**30


def graph_of(*lines: str, output: str) -> Graph:
    values = "input %x: float32[1024]\n  param %w: float32[1024]\n  param %b: float32[1]"
    return parse("\n  ".join(["graph g {", values, *lines, f"return {output}"]) + "\n}")


def peak_of(graph: Graph, trainable: set[str], resident: int = 0) -> tuple[int, int]:
    peak, between = training_peak(graph, saved_tensors(graph, trainable), trainable, resident)
    return peak.nbytes, between


def test_a_sum_passes_its_gradient_to_both_sides_without_another_storage():
    """Both vectors of 4096 bytes are expanded from one element, which the two share with the results' gradient."""
    graph = graph_of("%0 = add.Tensor(self=%x, other=%w) : float32[1024]", output="%0")
    assert peak_of(graph, {"w"}) == (4096 + 512, 4096)


def test_a_second_gradient_is_added_to_a_shared_one_in_a_new_storage():
    """w + w: its gradient arrives twice in one storage, that of the output; the sum needs one of its own."""
    graph = graph_of(
        "%0 = exp(self=%w) : float32[1024]", "%1 = add.Tensor(self=%0, other=%0) : float32[1024]", output="%1"
    )
    most, between = peak_of(graph, {"w"})
    assert between == 2 * 4096  # exp's result, which it saves, and the output
    assert most == between + 512 + 4096  # the single element, and exp's gradient


def test_a_smaller_factor_gets_a_sum_of_a_product_at_full_size():
    """mul saves x for b's gradient: the product of 4096 bytes is summed to one block of 512."""
    graph = graph_of("%0 = mul.Tensor(self=%x, other=%b) : float32[1024]", output="%0")
    assert peak_of(graph, {"b"}) == (4096 + 512 + 4096 + 512, 4096)
    whole = graph_of("%0 = mul.Tensor(self=%x, other=%w) : float32[1024]", output="%0")
    assert peak_of(whole, {"w"}) == (4096 + 512 + 4096, 4096)


def test_gradients_of_a_chain_live_two_at_a_time_and_the_parameters_stays():
    """exp of exp of exp of w: three saved results; each backward holds its own gradient and the next one."""
    lines = [f"%{i} = exp(self=%{i - 1 if i else 'w'}) : float32[1024]" for i in range(3)]
    most, between = peak_of(graph_of(*lines, output="%2"), {"w"})
    assert between == 3 * 4096
    # the last backward: the second result was freed, the output is held by the caller; two gradients
    assert most == 3 * 4096 + 2 * 4096


def test_without_anything_to_train_the_forward_pass_is_the_peak():
    graph = graph_of("%0 = exp(self=%x) : float32[1024]", "%1 = exp(self=%0) : float32[1024]", output="%1")
    assert peak_of(graph, set(), resident=100) == (100 + 2 * 4096, 100 + 4096)


def test_the_peak_names_the_first_operator_that_reaches_it():
    graph = graph_of(
        "%0 = exp(self=%x) : float32[1024]",
        "%1 = exp(self=%0) : float32[1024]",
        "%2 = exp(self=%1) : float32[1024]",
        output="%2",
    )
    assert live_bytes(graph, 0) == [4096, 8192, 8192]
    assert inference_peak(graph, 0) == Peak(8192, "1")
    assert inference_peak(graph, 0, {"2": 1}) == Peak(8193, "2")
    empty = parse("graph g {\n  input %x: float32[4]\n  return %x\n}")
    assert inference_peak(empty, 77) == Peak(77, "")


def test_outputs_and_inputs_are_never_freed():
    graph = graph_of("%0 = exp(self=%x) : float32[1024]", "%1 = exp(self=%0) : float32[1024]", output="%0, %1")
    assert live_bytes(graph, 10) == [4106, 8202]


def test_a_pass_needs_its_inputs_parameters_and_results():
    graph = graph_of("%0 = exp(self=%x) : float32[1024]", output="%0")
    assert eager_bytes(graph) == 4096 + 4096 + 512 + 4096


@pytest.mark.parametrize(
    ("needed", "available", "fits"),
    [(GIB, GIB, True), (GIB + 1, GIB, False), (None, GIB, True), (GIB, None, True), (0, 0, True)],
)
def test_a_request_fits_up_to_the_whole_memory(needed: int | None, available: int | None, fits: bool):
    assert (shortage(needed, available) == "") is fits


def test_a_shortage_names_both_sizes():
    said = shortage(3 * GIB // 2, GIB)
    assert said == "does not fit in memory: needs about 1.5 GiB, the device has 1.0 GiB"


@pytest.mark.parametrize(("name", "state", "step"), [("none", 0, 0), ("sgd", 0, 0), ("momentum", 1, 0), ("adam", 2, 1)])
def test_optimizers_keep_copies_of_the_parameters(name: str, state: int, step: int):
    assert (OPTIMIZERS[name].state, OPTIMIZERS[name].step) == (state, step)
