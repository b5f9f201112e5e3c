"""Subgraphs cut out under canonical names, and convolutions fused into one call, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.ir import Graph, Ref, parse
from costmodel.ir.subgraph import FUSED, FUSED_ADD, Part, addend_of, cut, fused_part, is_fusible

GEOMETRY = "stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1"
KIND = "float32[1,8,4,4]"


def graph_of(*lines: str, output: str) -> Graph:
    values = [f"input %x: {KIND}", f"input %z: {KIND}", "param %w: float32[8,8,1,1]", "param %b: float32[8]"]
    return parse("\n  ".join(["graph net {", *values, *lines, f"return {output}"]) + "\n}")


CONVOLUTION = f"%c = convolution(input=%x, weight=%w, bias=%b, {GEOMETRY}) : {KIND} @conv"
PLAIN = (CONVOLUTION, f"%r = relu(self=%c) : {KIND}")
RESIDUAL = (CONVOLUTION, f"%s = add.Tensor(self=%c, other=%z) : {KIND}", f"%r = relu(self=%s) : {KIND}")


def test_a_part_has_canonical_names_and_knows_what_they_stand_for():
    graph = graph_of(*RESIDUAL, f"%t = mul.Tensor(self=%r, other=%c) : {KIND}", output="%t, %s")
    part = cut(graph, ["s", "c"])
    assert str(part.graph) == str(
        parse(f"""graph _ {{
  input %a0: {KIND}
  param %a1: float32[8,8,1,1]
  param %a2: float32[8]
  input %a3: {KIND}
  %0 = convolution(input=%a0, weight=%a1, bias=%a2, {GEOMETRY}) : {KIND}
  %1 = add.Tensor(self=%0, other=%a3) : {KIND}
  return %1, %0
}}""")
    )
    assert part.inputs == (Ref("x"), Ref("w"), Ref("b"), Ref("z"))
    assert part.outputs == (Ref("s"), Ref("c"))  # in the order in which they are read


def test_equal_parts_of_other_places_have_equal_graphs():
    lines = [f"%{i} = exp(self=%{i - 1 if i else 'x'}) : {KIND}" for i in range(4)]
    graph = graph_of(*lines, output="%3")
    assert cut(graph, ["0", "1"]).graph == cut(graph, ["2", "3"]).graph
    assert cut(graph, ["2", "3"]).inputs == (Ref("1"),)
    assert cut(graph, ["3"]).outputs == (Ref("3"),)


def test_what_is_read_inside_only_is_not_returned():
    graph = graph_of(f"%0 = exp(self=%x) : {KIND}", f"%1 = exp(self=%0) : {KIND}", output="%1")
    assert cut(graph, ["0", "1"]).outputs == (Ref("1"),)
    assert cut(graph, ["0"]).outputs == (Ref("0"),)


def test_results_of_one_operator_are_returned_by_their_index():
    graph = graph_of(
        "%0 = split.Tensor(self=%x, split_size=4, dim=1) : float32[1,4,4,4] strided, float32[1,4,4,4] strided",
        f"%1 = cat(tensors=[%0#1, %0], dim=1) : {KIND}",
        output="%1",
    )
    part = cut(graph, ["0"])
    assert part.outputs == (Ref("0", 1), Ref("0"))
    assert part.graph.outputs == (Ref("0", 1), Ref("0"))


def fused(*lines: str, output: str = "%r") -> Part | None:
    graph = graph_of(*lines, output=output)
    return fused_part(cut(graph, [op.name for op in graph.ops]))


def test_a_convolution_with_bias_and_relu_is_one_call():
    part = fused(*PLAIN)
    assert part is not None
    (op,) = part.graph.ops
    assert (op.name, op.op) == ("0", FUSED)
    assert [key for key, _ in op.args] == ["self", "weight", "bias", "stride", "padding", "dilation", "groups"]
    assert part.graph.outputs == (Ref("0"),)
    assert part.outputs == (Ref("r"),)


@pytest.mark.parametrize("pair", ["self=%c, other=%z", "self=%z, other=%c"])
def test_an_addition_in_between_is_taken_along(pair: str):
    part = fused(CONVOLUTION, f"%s = add.Tensor({pair}) : {KIND}", f"%r = relu(self=%s) : {KIND}")
    assert part is not None
    (op,) = part.graph.ops
    assert op.op == FUSED_ADD
    assert op.arg("alpha") == 1.0
    assert part.inputs[[f"a{i}" for i in range(4)].index(op.arg("z").name)] == Ref("z")


@pytest.mark.parametrize(
    ("lines", "output"),
    [
        pytest.param((CONVOLUTION,), "%c", id="alone"),
        pytest.param((CONVOLUTION, f"%r = exp(self=%c) : {KIND}"), "%r", id="another-activation"),
        pytest.param((CONVOLUTION.replace("bias=%b", "bias=None"), PLAIN[1]), "%r", id="without-bias"),
        pytest.param((CONVOLUTION.replace("transposed=False", "transposed=True"), PLAIN[1]), "%r", id="transposed"),
        pytest.param(PLAIN, "%r, %c", id="its-result-is-read-too"),
        pytest.param((*RESIDUAL[:2], f"%r = relu(self=%c) : {KIND}"), "%r, %s", id="relu-beside-the-sum"),
        pytest.param((RESIDUAL[0], RESIDUAL[1].replace("other=%z", "other=%c"), RESIDUAL[2]), "%r", id="twice-itself"),
        pytest.param((RESIDUAL[0], RESIDUAL[1].replace("other=%z", "other=2.0"), RESIDUAL[2]), "%r", id="a-number"),
        pytest.param((RESIDUAL[0], RESIDUAL[1].replace("%z)", "%z, alpha=2)"), RESIDUAL[2]), "%r", id="scaled"),
        pytest.param((*PLAIN, f"%e = relu(self=%r) : {KIND}"), "%e", id="relu-of-relu"),
    ],
)
def test_other_parts_are_not_fused(lines: tuple[str, ...], output: str):
    assert fused(*lines, output=output) is None


def test_views_come_before_and_behind_the_call_and_none_within():
    before = f"%v = view(self=%z, size=[1, 8, 4, 4]) : {KIND}"
    behind = "%u = view(self=%r, size=[8, 16]) : float32[8,16]"
    part = fused(RESIDUAL[0], before, RESIDUAL[1].replace("%z", "%v"), RESIDUAL[2], behind, output="%u")
    assert part is not None
    assert [op.base for op in part.graph.ops] == ["view", FUSED_ADD, "view"]
    assert [op.name for op in part.graph.ops] == ["0", "1", "2"]
    assert part.graph.outputs == (Ref("2"),)
    assert part.graph.verify() is part.graph
    within = f"%v = view(self=%c, size=[1, 8, 4, 4]) : {KIND}"
    assert fused(CONVOLUTION, within, f"%r = relu(self=%v) : {KIND}") is None


def test_a_convolution_of_other_dimensions_is_not_fusible():
    graph = graph_of(CONVOLUTION, output="%c")
    (op,) = graph.ops
    assert is_fusible(op)
    assert not is_fusible(replace(op, types=(replace(op.type, shape=(1, 8, 4)),)))
    assert not is_fusible(replace(op, op="cudnn_convolution"))


def test_an_addend_has_the_shape_of_the_result():
    graph = graph_of(CONVOLUTION, f"%s = add.Tensor(self=%c, other=%b) : {KIND}", output="%s")
    convolution, total = graph.ops
    assert addend_of(total, convolution) == Ref("b")
    wider = replace(total, types=(replace(total.type, shape=(2, 8, 4, 4)),))
    assert addend_of(wider, convolution) is None
    assert addend_of(replace(total, op="add.Scalar"), convolution) is None
