"""The IR: its invariants, and a text form that says everything."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.errors import GraphError
from costmodel.ir import (
    DTYPE_BYTES,
    LAYOUTS,
    Arg,
    Break,
    Calls,
    Graph,
    Op,
    Ref,
    TensorType,
    Value,
    parse,
    parse_types,
    refs_in,
)
from tests.support.nasty_names import nasty_names

IMAGE = TensorType("float32", (1, 3, 8, 8))
X = Value("x", IMAGE)


def unary(name: str, source: str, base: str = "relu") -> Op:
    return Op(name, base, (("self", Ref(source)),), (IMAGE,))


def graph(*ops: Op, values: tuple[Value, ...] = (X,), outputs: tuple[Ref, ...] = ()) -> Graph:
    return Graph("g", values, ops, outputs)


class TestTensorType:
    def test_counts_elements_and_bytes(self) -> None:
        kind = TensorType("float16", (2, 3, 4))
        assert kind.numel == 24  # 2 * 3 * 4
        assert kind.nbytes == 48  # 2 bytes each

    def test_a_scalar_has_one_element(self) -> None:
        assert TensorType("int64", ()).nbytes == 8

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            (IMAGE, "float32[1,3,8,8]"),
            (TensorType("bool", ()), "bool[]"),
            (replace(IMAGE, layout="nhwc"), "float32[1,3,8,8] nhwc"),
        ],
    )
    def test_prints(self, kind: TensorType, text: str) -> None:
        assert str(kind) == text
        assert parse_types(text) == (kind,)


class TestOp:
    op = Op("c", "cat.out", (("tensors", (Ref("a"), Ref("b", 1), Ref("a"))), ("dim", 1)), (IMAGE,), "block.1")

    def test_base_is_the_name_without_overload(self) -> None:
        assert self.op.base == "cat"

    def test_refs_keep_order_and_repeats(self) -> None:
        assert self.op.refs() == (Ref("a"), Ref("b", 1), Ref("a"))

    def test_a_copy_that_changes_nothing_is_the_operator_itself(self) -> None:
        op = Op("c", "cat", (("tensors", (Ref("x"), Ref("y", 1))), ("dim", 1)), (IMAGE,), "m", True, (Ref("x"),), 2)
        assert op.reading(lambda ref: Ref(ref.name, ref.index)) is op
        assert op.with_types((IMAGE,)) is op
        assert IMAGE.with_layout("nchw") is IMAGE
        moved = op.reading(lambda ref: Ref("z")).with_types((IMAGE.with_layout("nhwc"),))
        expected = replace(
            op, args=(("tensors", (Ref("z"), Ref("z"))), ("dim", 1)), types=(replace(IMAGE, layout="nhwc"),)
        )
        assert moved == expected
        assert (moved.inplace, moved.frees, moved.section) == (True, (Ref("x"),), 2)
        assert moved.refs() == (Ref("z"), Ref("z"))

    def test_arg_has_a_default(self) -> None:
        assert self.op.arg("dim") == 1
        assert self.op.arg("out", 7) == 7

    def test_prints(self) -> None:
        assert str(self.op) == "%c = cat.out(tensors=[%a, %b#1, %a], dim=1) : float32[1,3,8,8] @block.1"


class TestVerify:
    def test_accepts_and_returns_the_graph(self) -> None:
        good = graph(unary("a", "x"), unary("b", "a"), outputs=(Ref("b"),))
        assert good.verify() is good

    @pytest.mark.parametrize(
        ("bad", "words"),
        [
            (graph(unary("a", "x"), unary("a", "x")), "%a is defined twice"),
            (graph(unary("x", "x")), "%x is defined twice"),
            (graph(values=(X, X)), "%x is defined twice"),
            (graph(unary("a", "b"), unary("b", "x")), "%a uses %b, which is not defined before it"),
            (graph(unary("a", "a")), "%a uses %a"),
            (graph(outputs=(Ref("y"),)), "return uses %y"),
            (graph(outputs=(Ref("x", 1),)), "return uses %x#1"),
            (graph(outputs=(Ref("x", -1),)), "return uses %x#-1"),
            (graph(values=(replace(X, role="weight"),)), "unknown role 'weight'"),
            (graph(values=(Value("x", TensorType("float13", ())),)), "unknown dtype 'float13'"),
            (graph(values=(Value("x", TensorType("bool", (-1,))),)), "impossible type"),
            (graph(values=(Value("x", TensorType("bool", (1,), "nwhc")),)), "impossible type"),
        ],
    )
    def test_names_the_broken_invariant(self, bad: Graph, words: str) -> None:
        with pytest.raises(GraphError) as caught:
            bad.verify()
        assert words in str(caught.value)

    @pytest.mark.parametrize("ref", [Ref("y"), Ref("x", 1), Ref("x", -1)])
    def test_type_of_refuses_what_is_not_there(self, ref: Ref) -> None:
        with pytest.raises(GraphError, match="no value"):
            graph().type_of(ref)


def test_users_are_in_order_and_each_once() -> None:
    twice = Op("b", "add.Tensor", (("self", Ref("a")), ("other", Ref("a"))), (IMAGE,))
    users = graph(unary("a", "x"), twice, unary("c", "a")).users()
    assert [op.name for op in users["a"]] == ["b", "c"]
    assert users["c"] == []


class TestParse:
    TEXT = """graph tiny calls 2 views 3 idle 4 queries 5 writes 6 checks 1 {
  input %x: float32[1,3,8,8]
  param %w: float32[4,3,3,3] nhwc
  %c = convolution(input=%x, weight=%w, bias=None, stride=[1, 1], transposed=False) : float32[1,4,6,6] @conv
  %r = relu(self=%c) : float32[1,4,6,6]
  return %r, %c
}"""

    def test_reads_what_is_printed(self) -> None:
        tiny = parse(self.TEXT)
        assert str(tiny) == self.TEXT
        assert (tiny.calls, tiny.checked_modules) == (Calls(modules=2, views=3, idle=4, queries=5, writes=6), 1)
        assert tiny.ops[0].arg("stride") == (1, 1)
        assert tiny.ops[0].module == "conv"

    def test_an_empty_graph_returns_its_input(self) -> None:
        empty = graph(outputs=(Ref("x"),))
        assert parse(str(empty)) == empty

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "graph g {\n}",
            "graph g {\n  output %x: float32[1]\n  return %x\n}",
            "graph g {\n  input %x: float32[1], float32[1]\n  return %x\n}",
            "graph g {\n  input %x: float32(1)\n  return %x\n}",
            "graph g {\n  input %x: float32[1]\n  return %y\n}",
            "graph g {\n  input %x: float32[1]\n  return %x#one\n}",
            "graph g {\n  input %x: float32[1]\n  %a = relu(self) : float32[1]\n  return %a\n}",
            "graph g {\n  input %x: float32[1]\n  %a = relu(self=) : float32[1]\n  return %a\n}",
            "graph g {\n  input %x: float32[1]\n  %a = relu(self=%x dim=1) : float32[1]\n  return %a\n}",
            "graph g {\n  input %x: float32[1]\n  %a = cat(tensors=[%x) : float32[1]\n  return %a\n}",
            "graph g {\n  input %x: float32[1]\n  %a = relu(self=%x, by=what) : float32[1]\n  return %a\n}",
        ],
    )
    def test_refuses_other_text_in_one_line(self, text: str) -> None:
        with pytest.raises(GraphError) as caught:
            parse(text)
        assert "\n" not in str(caught.value)


names = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True) | nasty_names()
types = st.builds(
    TensorType,
    st.sampled_from(sorted(DTYPE_BYTES)),
    st.lists(st.integers(0, 4096), max_size=5).map(tuple),
    st.sampled_from(LAYOUTS),
)


def arguments(refs: list[Ref]) -> st.SearchStrategy[Arg]:
    scalars = (
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | nasty_names() | st.sampled_from(refs)
    )
    return st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


breaks = st.builds(
    Break, st.sampled_from(("size", "stop", "cut")), names, st.just("") | names, names, st.lists(names).map(tuple)
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs that verify: each operator reads only what stands before it."""
    unique = iter(draw(st.lists(names, min_size=7, max_size=7, unique=True)))
    values = [
        Value(next(unique), draw(types), draw(st.sampled_from(("input", "param"))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    refs = [Ref(value.name) for value in values]
    ops = []
    for _ in range(draw(st.integers(0, 4))):
        args = draw(st.lists(st.tuples(names, arguments(refs)), max_size=4))
        results = draw(st.lists(types, min_size=1, max_size=3))
        op = Op(next(unique), draw(names), tuple(args), tuple(results), draw(st.just("") | names))
        ops.append(op)
        refs += [Ref(op.name, index) for index in range(len(results))]
    outputs = draw(st.lists(st.sampled_from(refs), min_size=1, max_size=3))
    return Graph(
        draw(st.just("") | names),
        tuple(values),
        tuple(ops),
        tuple(outputs),
        draw(st.builds(Calls, *[st.integers(0, 99)] * 4)),
        tuple(draw(st.lists(breaks, max_size=2))),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
@given(graphs())
def test_the_text_form_says_everything(some: Graph) -> None:
    assert some.verify() is some
    assert parse(str(some)) == some
    assert str(parse(str(some))) == str(some)
    assert all(line.isprintable() for line in str(some).split("\n"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
@given(graphs())
def test_references_point_backwards(some: Graph) -> None:
    defined = {value.name for value in some.values}
    for op in some.ops:
        assert {ref.name for _, arg in op.args for ref in refs_in(arg)} <= defined
        defined.add(op.name)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("features.0", "features.0"),
        ("a b", r"a\x20b"),
        ("\x1b[31m", r"\x1b\x5b31m"),
        ("\u202e\ud800", r"\u202e\ud800"),
        ("\U000e0001", r"\U000e0001"),
        ("C:\\x41", r"C:\x5cx41"),  # what was typed as an escape stays one
        ("é字", "é字"),
    ],
)
def test_a_name_is_one_printable_word(name: str, word: str) -> None:
    text = str(graph(replace(unary("a", "x"), module=name)))
    assert f": float32[1,3,8,8] @{word}\n" in text
    assert parse(text).ops[0].module == name


def test_a_complex_argument_survives() -> None:
    turned = graph(Op("a", "mul.Scalar", (("self", Ref("x")), ("other", 1 - 2j)), (IMAGE,)))
    assert parse(str(turned)) == turned


@pytest.mark.parametrize(
    ("kind", "op"), [("size", "nonzero"), ("stop", "control_flow"), ("cut", "a call of 'print', says \"Dynamo\"")]
)
def test_a_break_survives(kind: str, op: str) -> None:
    cut = replace(graph(), breaks=(Break(kind, op, "head.0", "net.py:3", ("neck", "head")),))
    assert parse(str(cut)) == cut


def test_an_infinite_argument_survives() -> None:
    masked = graph(Op("a", "masked_fill.Scalar", (("self", Ref("x")), ("value", -math.inf)), (IMAGE,)))
    assert parse(str(masked)) == masked


def test_the_example_of_the_documented_grammar_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ir.md").read_text()
    text = next(block for block in page.split("```") if block.strip().startswith("graph "))
    assert str(parse(text)) == text.strip()


def test_the_documented_grammar_names_every_dtype_and_layout() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ir.md").read_text()
    grammar = next(block for block in page.split("```") if "::=" in block)
    rules = {line.partition(" ")[0]: line for line in grammar.replace("\n  ", "  ").splitlines() if "::=" in line}
    assert set(re.findall(r"'(\w+)'", rules["Dtype"])) == set(DTYPE_BYTES)
    assert {"nchw", *re.findall(r"'(\w+)'", rules["Layout"])} == set(LAYOUTS)


@pytest.mark.parametrize(("dtype", "nbytes"), DTYPE_BYTES.items())
def test_a_dtype_takes_as_many_bytes_as_in_torch(dtype: str, nbytes: int) -> None:
    assert getattr(torch, dtype).itemsize == nbytes


def test_the_bytes_of_a_tensor_are_those_of_all_elements() -> None:
    assert TensorType("float16", (3, 5)).nbytes == 30
    assert TensorType("complex128", ()).nbytes == 16
    assert TensorType("int8", (7, 0)).nbytes == 0
