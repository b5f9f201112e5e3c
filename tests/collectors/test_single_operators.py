"""Single operators with the shapes of models: repeatable, of every kind, and predictable."""

from __future__ import annotations

from collections import Counter

from collectors.workloads import single_operators
from costmodel.features import group_of
from costmodel.ir import operators, parse
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel


def test_every_case_is_one_call_of_no_model_that_can_be_predicted():
    cases = single_operators.sample(400, seed=5)
    assert len({case.key for case in cases}) == 400
    for case in cases:
        graph = parse(case.graph)
        assert sum(operators.lookup(op).role is not Role.VIEW for op in graph.ops) == 1
        assert group_of(Kernel("aten", graph, ())) in ("aten", "attention")
        assert (case.runner, case.source, case.position) == ("aten", "map", None)
        for value in graph.values:
            assert value.role == "param" or value.type.numel <= single_operators.MOST_ELEMENTS


def test_the_same_seed_draws_the_same():
    some = single_operators.sample(30, seed=3)
    assert single_operators.sample(50, seed=3)[:30] == some
    assert single_operators.sample(30, seed=4) != some


def test_every_kind_is_drawn_about_as_often_as_it_should_be():
    kinds = Counter(Kernel("aten", parse(case.graph), ()).kind for case in single_operators.sample(2000, seed=1))
    shares = {"batch_norm": 0.12, "cat": 0.13, "attention": 0.13, "layer_norm": 0.08, "group_norm": 0.05, "copy": 0.08}
    shares["roll"] = 0.02
    for kind, share in shares.items():
        assert 0.6 * share < kinds[kind] / 2000 < 1.6 * share, kind
    assert {"add", "mul", "mean", "softmax", "avg_pool2d", "max_pool2d", "relu", "gelu"} <= set(kinds)


def test_attention_reads_parts_of_what_one_linear_layer_made():
    cases = [case for case in single_operators.sample(600, seed=2) if "scaled_dot_product_attention" in case.graph]
    attention = [parse(case.graph) for case in cases]
    packed = [graph for graph in attention if len(graph.values) == 1]
    assert 0.7 < len(packed) / len(attention) < 0.97  # 15 of a hundred have keys of other tokens
    for graph in packed:
        assert len({graph.type_of(ref).shape for ref in graph.ops[-1].refs()}) == 1
        assert len(graph.ops[-1].refs()) == 3
