"""Operators that rewrites add: their names, types and modules."""

from __future__ import annotations

from costmodel.ir import Graph, Op, Ref, TensorType, parse
from costmodel.ir.builder import Emitter, Site, rewritten

KIND = TensorType("float32", (2, 3))
GRAPH = parse("""graph g {
  input %x: float32[2,3]
  %0 = exp(self=%x) : float32[2,3] @first
  %1 = neg(self=%0) : float32[2,3] @second
  return %1, %0
}""")


def test_added_operators_are_numbered_behind_their_origin():
    emit = Emitter(GRAPH, "1.new", "second")
    one = emit.add("abs", KIND, ("self", Ref("0")))
    other = emit.add("relu", TensorType("float16", (6,)), ("self", one))
    assert (one, other) == (Ref("1.new.0"), Ref("1.new.1"))
    assert [(op.name, op.op, op.module) for op in emit.ops] == [
        *(("1.new.0", "abs", "second"), ("1.new.1", "relu", "second")),
    ]
    assert emit.type_of(other) == TensorType("float16", (6,))
    assert emit.type_of(Ref("0")) == emit.type_of(Ref("x")) == KIND


def test_a_cast_is_added_where_the_dtype_differs():
    emit = Emitter(GRAPH, "new")
    assert emit.cast(Ref("x"), "float32") == Ref("x")
    assert emit.ops == []
    half = emit.cast(Ref("x"), "float16")
    (op,) = emit.ops
    assert (op.op, op.arg("dtype"), op.type) == ("_to_copy", "torch.float16", TensorType("float16", (2, 3)))
    assert emit.cast(half, "float16") == half


def test_an_operator_is_replaced_under_its_name_or_kept():
    def twice(site: Site) -> list[Op] | None:
        source = site.ref("self")
        assert source is not None
        assert site.ref("alpha") is None
        added = site.add("abs", (KIND, KIND), self=source)
        return site.finish("mul.Tensor", self=added, other=2.0)

    seen: list[tuple[str, list[str], frozenset[str]]] = []

    def kept(site: Site) -> None:
        seen.append((site.op.name, [op.name for op in site.users[site.op.name]], frozenset(site.returned)))

    found: Graph = rewritten(GRAPH, {"exp": twice, "neg": kept}).verify()
    assert [(op.name, op.op, op.module) for op in found.ops] == [
        *(("0.0", "abs", "first"), ("0", "mul.Tensor", "first"), ("1", "neg", "second")),
    ]
    assert found.ops[0].types == (KIND, KIND)
    assert found.ops[1].types == GRAPH.ops[0].types
    assert seen == [("1", [], frozenset({"0", "1"}))]
    assert rewritten(GRAPH, {"sin": twice}) == GRAPH
