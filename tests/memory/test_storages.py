"""Storages and versions of values, by hand."""

from __future__ import annotations

from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.memory.storages import overwritten, rounded, shares_memory_with, storages, versions

KIND, STATISTICS = TensorType("float32", (1, 4, 8, 8)), TensorType("float32", (4,))
X = Value("x", KIND)


def unary(name: str, base: str, source: str, inplace: bool = False) -> Op:
    return Op(name, base, (("self", Ref(source)),), (KIND,), inplace=inplace)


def norm(training: bool) -> Op:
    args = (("input", Ref("x")), ("training", training))
    return Op("0", "native_batch_norm", args, (KIND, STATISTICS, STATISTICS))


def test_statistics_are_kept_in_training_only():
    for training, nbytes in ((True, 512), (False, 0)):
        found = storages(Graph("g", (X,), (norm(training),), (Ref("0"),)))
        assert [found[Ref("0", index)].nbytes for index in range(3)] == [1024, nbytes, nbytes]
        assert [found[Ref("0", index)].made_at for index in range(3)] == [0, 0, 0]
        assert found[Ref("x")].made_at == -1


def test_views_of_views_and_writes_share_the_first_ones_memory():
    ops = (unary("0", "exp", "x"), unary("1", "view", "0"), unary("2", "view", "1"), unary("3", "relu", "2", True))
    found = storages(Graph("g", (X,), ops, (Ref("3"),)))
    assert {found[Ref(name)] for name in "0123"} == {found[Ref("0")]}
    assert (found[Ref("0")].owner, found[Ref("0")].made_at) == (Ref("0"), 0)
    assert found[Ref("x")].owner == Ref("x")


def test_all_results_of_a_view_share_and_only_the_first_of_a_write():
    split = Op("0", "split", (("self", Ref("x")),), (KIND, KIND))
    found = storages(Graph("g", (X,), (split,), (Ref("0"),)))
    assert found[Ref("0")] is found[Ref("0", 1)] is found[Ref("x")]
    written = Op("0", "strange", (("self", Ref("x")),), (KIND, KIND), inplace=True)
    found = storages(Graph("g", (X,), (written,), (Ref("0"),)))
    assert found[Ref("0")] is found[Ref("x")]
    assert found[Ref("0", 1)].owner == Ref("0", 1)


def test_a_version_goes_through_views_and_not_through_writes():
    ops = (unary("0", "exp", "x"), unary("1", "view", "0"), unary("2", "relu", "1", True), unary("3", "view", "2"))
    graph = Graph("g", (X,), ops, (Ref("3"),))
    version = versions(graph)
    assert [version[Ref(name)].name for name in "x0123"] == ["x", "0", "0", "2", "2"]
    assert overwritten(graph, version) == {Ref("0")}


def test_only_views_and_writes_share_memory():
    assert shares_memory_with(unary("0", "exp", "x")) is None
    assert shares_memory_with(unary("0", "exp", "x", True)) == Ref("x")
    assert shares_memory_with(unary("0", "view", "x")) == Ref("x")
    assert shares_memory_with(Op("0", "empty", (), (KIND,), inplace=True)) is None


def test_blocks_are_multiples_of_512_bytes():
    assert [rounded(nbytes) for nbytes in (0, 1, 511, 512, 513, 1024, 1025)] == [0, 512, 512, 512, 1024, 1024, 1536]
