"""The module tree: totals, counts and names by hand, and what holds for any model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.report import Module, Report
from costmodel.report.module_tree import ModuleNode
from costmodel.report.tree_rows import tree_rows
from tests.support.sample_trees import layer, network


def nodes(root: ModuleNode) -> dict[str, ModuleNode]:
    return {node.name: node for _, node in root.walk()}


def test_a_network_by_hand() -> None:
    root = network().tree()
    assert (root.label, root.module_type, root.count) == ("tiny", "Net", 1)
    assert [child.label for child in root.children] == ["stem", "blocks", "mixer", "unused", "head"]
    # 40 + 3 (30 + 4) + 10 + 6 + 5 and 20 + 3 (15 + 8) + 10 + 2 + 4
    assert (root.eager_us, root.compiled_us) == (163.0, 105.0)
    assert root.parameters == 9408 + 128 + 3 * 36_864 + 4096 + 100 + 513_000
    assert root.flops == 2_000_000 + 3 * 8_000_000 + 4_000_000 + 6_000_000
    assert root.speedup == pytest.approx(163 / 105)


def test_identical_siblings_are_one_node_with_their_totals() -> None:
    (blocks,) = (child for child in network().tree().children if child.label == "blocks")
    (merged,) = blocks.children
    assert (merged.label, merged.name, merged.count, merged.module_type) == ("0..2", "blocks.0", 3, "Block")
    assert (merged.eager_us, merged.compiled_us, merged.parameters) == (102.0, 69.0, 3 * 36_864)
    conv, cat = merged.children
    assert (conv.label, conv.count, conv.eager_us, conv.compiled_us) == ("conv", 3, 90.0, 45.0)
    assert (cat.label, cat.count, cat.module_type, cat.reason) == ("cat", 3, "", "layout copies")


def test_layers_of_the_model_itself_are_one_row_a_kind_however_a_loop_interleaves_them() -> None:
    looped = tuple(layer(kind, kind, 2.0, 1.0, modules=("",)) for kind in ("mul", "sum", "mul", "sum", "mul"))
    root = replace(network(), layers=looped, modules=()).tree()
    assert [(node.label, node.count, node.eager_us) for node in root.children] == [("mul", 3, 6.0), ("sum", 2, 4.0)]


def test_a_block_that_takes_another_time_is_a_row_of_its_own() -> None:
    usual = network()
    slower = tuple(replace(one, compiled_us=30.0) if one.name == "blocks.1.conv" else one for one in usual.layers)
    (blocks,) = (child for child in replace(usual, layers=slower).tree().children if child.label == "blocks")
    assert [child.label for child in blocks.children] == ["0", "1", "2"]


def test_a_module_inside_a_layer_and_one_that_does_not_run_keep_their_parameters() -> None:
    found = nodes(network().tree())
    assert (found["stem.norm"].parameters, found["stem.norm"].eager_us) == (128, 0.0)
    assert found["stem.norm"].reason == "part of stem.conv"
    assert found["unused"].reason == "no operator of its own"


def test_a_module_with_several_layers_has_them_as_children_and_its_parameters_in_the_first() -> None:
    mixer = nodes(network().tree())["mixer"]
    (mixer,) = (child for child in network().tree().children if child.label == "mixer")
    assert [(child.label, child.kind, child.parameters) for child in mixer.children] == [
        ("matmul", "matmul", 4096),
        ("softmax", "softmax", 0),
    ]
    assert mixer.reason == "softmax fused"  # 4 us of the 4 us that the module gains


def test_the_interval_of_a_total_is_that_of_its_parts_by_time() -> None:
    (stem,) = (child for child in network().tree().children if child.label == "stem")
    assert stem.speedup_high / stem.speedup == pytest.approx(1.25)
    assert stem.speedup / stem.speedup_low == pytest.approx(1.25)


names = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=6)
paths = st.lists(names, min_size=0, max_size=4).map(".".join)
times_us = st.floats(0.0, 1e6).map(lambda us: round(us, 3))


@st.composite
def reports(draw: st.DrawFn) -> Report:
    found = draw(st.lists(st.tuples(paths, st.sampled_from("abc"), times_us, times_us), max_size=25))
    layers = tuple(
        layer(path or kind, kind, eager, compiled, modules=(path,), flops=draw(st.integers(0, 9)))
        for path, kind, eager, compiled in found
    )
    others = draw(st.lists(paths, max_size=10))
    known = dict.fromkeys([*others, *(path for path, *_ in found)])
    modules = tuple(Module(path, draw(st.sampled_from("XY")), draw(st.integers(0, 99))) for path in known)
    return replace(network(), layers=layers, modules=modules)


@given(reports())
def test_children_add_up_to_their_parent_and_the_model_to_its_layers(report: Report) -> None:
    root = report.tree()
    for field in ("eager_us", "compiled_us"):
        whole = math.fsum(getattr(one, field) or 0.0 for one in report.layers)
        assert getattr(root, field) == pytest.approx(whole)
    assert root.flops == sum(one.flops for one in report.layers)
    assert root.parameters == sum(module.parameters for module in report.modules)
    for _, node in root.walk():
        if node.children:
            for field in ("parameters", "flops", "eager_us", "compiled_us"):
                total = math.fsum(getattr(child, field) for child in node.children)
                assert getattr(node, field) == pytest.approx(total), (node.name, field)


@given(reports())
def test_no_layer_is_lost(report: Report) -> None:
    leaves = [node for _, node in report.tree().walk() if node.kind]
    assert sum(node.count for node in leaves) == len(report.layers)
    assert {node.kind for node in leaves} == {one.kind for one in report.layers}


@given(reports(), st.integers(1, 12), st.integers(1, 4), st.sampled_from((None, "time", "gain", "name")))
def test_shown_siblings_add_up_to_their_parent(report: Report, top: int, depth: int, sort: str | None) -> None:
    rows = tree_rows(report.tree(), depth, sort, top)
    assert sum(not row.others for row in rows) <= top + 1  # the model's row
    assert max(len(row.last) for row in rows) <= depth
    for place, row in enumerate(rows):
        below = []
        for other in rows[place + 1 :]:
            if len(other.last) <= len(row.last):
                break
            below += [other] if len(other.last) == len(row.last) + 1 else []
        if below:
            assert math.fsum(one.node.eager_us for one in below) == pytest.approx(row.node.eager_us)
            assert math.fsum(one.node.compiled_us for one in below) == pytest.approx(row.node.compiled_us)
            assert [one.last[-1] for one in below] == [False] * (len(below) - 1) + [True]


def test_modules_nested_deeper_than_pythons_stack() -> None:
    path = ".".join("m" * 3000)
    deep = replace(network(), layers=(layer(path, "conv2d", 2.0, 1.0),), modules=())
    root = deep.tree()
    assert max(depth for depth, _ in root.walk()) == 3000
    assert root.eager_us == 2.0


def test_a_model_of_many_layers_takes_one_row_a_kind() -> None:
    several = tuple(layer(f"blocks.{index}", "conv2d", 2.0, 1.0) for index in range(5000))
    root = replace(network(), layers=several, modules=()).tree()
    assert [(node.label, node.count, node.eager_us) for _, node in root.walk()][1:] == [
        ("blocks", 1, 10_000.0),
        ("0..4999", 5000, 10_000.0),
    ]
