"""Places of boxes and wires in a drawing, by hand; every box is 20 wide and 10 high, and gaps are 18."""

from __future__ import annotations

from costmodel.drawing.labels import shortened, speedup_text
from costmodel.drawing.layout import Drawing, Placed, Wire, arrange
from costmodel.streams import Dag, Leaf, Pipeline, SplitJoin
from costmodel.streams.types import Node


def drawn(node: Node[str]) -> Drawing[str]:
    return arrange(node, lambda item: (20.0 * len(item), 10.0))


def tops(drawing: Drawing[str]) -> dict[str, tuple[float, float]]:
    return {box.item: (box.x, box.y) for box in drawing.boxes}


def test_a_leaf_is_its_box():
    assert drawn(Leaf("a")) == Drawing(20.0, 10.0, (Placed("a", 0.0, 0.0, 20.0, 10.0),))


def test_a_pipeline_is_as_wide_as_its_widest_part_and_as_high_as_all_with_gaps():
    found = drawn(Pipeline((Leaf("a"), Leaf("bb"), Leaf("c"))))
    assert (found.width, found.height) == (40.0, 3 * 10 + 2 * 18)
    assert tops(found) == {"a": (0.0, 0.0), "bb": (0.0, 28.0), "c": (0.0, 56.0)}
    assert found.wires == (Wire(0.0, 10.0, 0.0, 28.0), Wire(0.0, 38.0, 0.0, 56.0))
    assert drawn(Pipeline()) == Drawing(12.0, 0.0)


def test_branches_are_centred_between_two_points():
    """Widths 20 and 40 with a gap make 78: from -39 to 39, with middles at -29 and 19."""
    found = drawn(SplitJoin((Pipeline((Leaf("a"), Leaf("b"))), Leaf("cc"))))
    assert (found.width, found.height) == (78.0, 38 + 2 * 18)
    assert tops(found) == {"a": (-29.0, 18.0), "b": (-29.0, 46.0), "cc": (19.0, 18.0)}
    assert set(found.wires) == {
        Wire(-29.0, 28.0, -29.0, 46.0),  # from a to b
        *(Wire(0.0, 0.0, -29.0, 18.0), Wire(-29.0, 56.0, -29.0, 56.0), Wire(-29.0, 56.0, 0.0, 74.0)),
        *(Wire(0.0, 0.0, 19.0, 18.0), Wire(19.0, 28.0, 19.0, 56.0), Wire(19.0, 56.0, 0.0, 74.0)),
    }


def test_a_general_node_has_a_row_a_level_and_edges_that_skip_one_go_around():
    """a, then b beside c, then d, which reads b and a: rows at 18, 46 and 74."""
    node = Dag((Leaf("a"), Leaf("b"), Leaf("c"), Leaf("d")), ((0, 1), (0, 2), (0, 3), (1, 3)))
    found = drawn(node)
    assert tops(found) == {"a": (0.0, 18.0), "b": (-19.0, 46.0), "c": (19.0, 46.0), "d": (0.0, 74.0)}
    assert set(found.wires) == {
        Wire(0.0, 28.0, -19.0, 46.0),
        Wire(0.0, 28.0, 19.0, 46.0),
        Wire(0.0, 28.0, 0.0, 74.0, bend=29.0 + 10.0),  # beside a row 58 wide
        Wire(-19.0, 56.0, 0.0, 74.0),
        Wire(0.0, 0.0, 0.0, 18.0),  # into a
        *(Wire(19.0, 56.0, 0.0, 102.0), Wire(0.0, 84.0, 0.0, 102.0)),  # out of c and d
    }
    assert (found.width, found.height) == (78.0, 102.0)


def test_an_edge_goes_further_aside_for_each_level_that_it_skips():
    chain = Dag(tuple(map(Leaf, "abcd")), ((0, 1), (0, 3), (1, 2), (2, 3)))
    (bent,) = [wire for wire in drawn(chain).wires if wire.bend]
    assert bent.bend == 10.0 + 2 * 10.0  # half of the width, and ten for each of b and c
    assert drawn(chain).width == 60.0


def test_a_drawing_moves_with_everything_in_it():
    found = Drawing(1.0, 2.0, (Placed("a", 1.0, 2.0, 3.0, 4.0),), (Wire(1.0, 2.0, 3.0, 4.0, 5.0),)).moved(10.0, 100.0)
    assert found.boxes == (Placed("a", 11.0, 102.0, 3.0, 4.0),)
    assert found.wires == (Wire(11.0, 102.0, 13.0, 104.0, 5.0),)


def test_long_names_lose_their_middle():
    assert shortened("a" * 100) == "a" * 100
    name = "".join(chr(ord("a") + index % 26) for index in range(101))
    assert shortened(name) == f"{name[:49]}...{name[-48:]}"
    assert len(shortened(name)) == 100
    assert shortened("a\n") == r"a\n"


def test_speedups_have_two_decimals():
    assert speedup_text(1.234) == "1.23x"
    assert speedup_text(None) == "not predicted"
