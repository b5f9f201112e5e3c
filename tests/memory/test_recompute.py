"""The incremental count of saved bytes against its definition, on random graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.ir import Graph, Op, Ref, TensorType, Value, parse
from costmodel.memory.recompute import Paths, Selection, is_heavy, recompute
from costmodel.memory.saved_tensors import saved_activations, saved_tensors

VECTOR, MATRIX = TensorType("float32", (256,)), TensorType("float32", (256, 256))
KINDS = ("exp", "sigmoid", "neg", "mv", "gelu", "mul", "add", "tanh")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Operators on vectors, each of earlier results; `mv` is a library call."""
    ops: list[Op] = []
    names = ["x"]
    for kind in ("mv", *draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))):
        one, other = (Ref(draw(st.sampled_from(names))) for _ in range(2))
        args = {
            "mv": (("self", Ref("w")), ("vec", one)),
            "mul": (("self", one), ("other", other)),
            "add": (("self", one), ("other", other)),
        }
        ops.append(Op(str(len(ops)), kind, args.get(kind, (("self", one),)), (VECTOR,)))
        names.append(ops[-1].name)
    return Graph("g", (Value("x", VECTOR), Value("w", MATRIX, "param")), tuple(ops), (Ref(ops[-1].name),)).verify()


def paths_of(graph: Graph) -> Paths:
    return Paths(graph, saved_activations(graph, saved_tensors(graph, {"w"})))


@settings(max_examples=30)
@given(graphs(), st.data())
def test_choosing_and_giving_up_count_as_the_definition_does(graph: Graph, data: st.DataObject) -> None:
    paths = paths_of(graph)
    light = sorted((ref for ref in paths.activations if not paths.fixed(ref)), key=paths.position)
    selection = Selection(paths)
    for _ in range(data.draw(st.integers(1, 6)) if light else 0):
        group = data.draw(st.lists(st.sampled_from(light), min_size=1, unique=True))
        some = [ref for ref in group if ref not in selection.chosen]
        if some:
            selection.add(some)
        else:
            selection.remove(group)
        assert selection.nbytes == paths.kept_bytes(selection.chosen)
    chosen = sorted(selection.chosen, key=paths.position)
    for ref in chosen:
        selection.remove((ref,))
        assert selection.nbytes == paths.kept_bytes(selection.chosen)
    assert selection.nbytes == sum(paths.activations.values())


@settings(max_examples=50)
@given(graphs())
def test_no_chosen_activation_could_be_saved_for_less(graph: Graph) -> None:
    paths = paths_of(graph)
    chosen = set(recompute(graph, saved_tensors(graph, {"w"}), lambda op: 1.0).values)
    least = paths.kept_bytes(chosen)
    assert all(paths.kept_bytes(chosen - {ref}) > least for ref in chosen)
    assert not any(paths.fixed(ref) for ref in chosen)


@settings(max_examples=50)
@given(graphs())
def test_what_runs_again_is_light_and_in_order(graph: Graph) -> None:
    found = recompute(graph, saved_tensors(graph, {"w"}), lambda op: 3.0)
    ops = {op.name: op for op in graph.ops}
    assert not any(is_heavy(ops[name]) for name in found.ops)
    assert list(found.ops) == [op.name for op in graph.ops if op.name in found.ops]
    assert found.added_us == 3.0 * len(found.ops)
    assert found.saved_bytes == found.stashed_before - found.stashed_after
    assert {ref.name for ref in found.values} <= set(found.ops)


def test_sources_of_a_value_are_library_calls_behind_light_operators_that_are_not_saved() -> None:
    graph = parse("""graph g {
      input %x: float32[256]
      param %w: float32[256,256]
      %0 = mv(self=%w, vec=%x) : float32[256]
      %1 = mv(self=%w, vec=%x) : float32[256]
      %2 = neg(self=%0) : float32[256]
      %3 = add.Tensor(self=%2, other=%1) : float32[256]
      %4 = exp(self=%3) : float32[256]
      return %4
    }""")
    paths = Paths(graph, {Ref("4"): 1024})
    assert paths.fresh_sources(Ref("4")) == {Ref("0"), Ref("1")}
    assert paths.operators({Ref("4")}) == {"2", "3", "4"}
    assert paths.kept_bytes(()) == 1024
    assert paths.kept_bytes({Ref("4")}) == 2048  # both results of the library
    saved = Paths(graph, {Ref("4"): 1024, Ref("1"): 1024, Ref("2"): 1024})
    assert saved.fresh_sources(Ref("4")) == {Ref("0")}
    assert saved.operators({Ref("4")}) == {"3", "4"}
    assert saved.kept_bytes({Ref("4")}) == 2048
