"""Objections to exported programs: structures of inputs and outputs."""

from __future__ import annotations

import json

import pytest

from costmodel.zoo.program_record import objections

LEAF = {"type": None, "context": None, "children_spec": []}


def structure(kind: str | None, context: object = None, *children: object) -> str:
    """Text of a structure in the form of torch.utils._pytree: version, then type, context and children."""
    text = None if context is None else json.dumps(context)
    return json.dumps([1, {"type": kind, "context": text, "children_spec": list(children)}])


@pytest.mark.parametrize("place", ["in_spec", "out_spec"])
@pytest.mark.parametrize(
    "text",
    ["", structure(None), structure("builtins.tuple", None, LEAF, LEAF), structure("builtins.dict", ["x", "y"], LEAF)],
)
def test_plain_structures_and_none_are_accepted(place: str, text: str):
    assert list(objections({place: text})) == []


@pytest.mark.parametrize("place", ["in_spec", "out_spec"])
@pytest.mark.parametrize(
    "text",
    [
        structure("os.system"),
        structure("builtins.tuple", None, LEAF, {**LEAF, "type": "collections.namedtuple"}),
        structure("builtins.dict", ["x\n"], LEAF),
        structure("builtins.dict", "x", LEAF),
    ],
)
def test_other_structures_are_refused(place: str, text: str):
    (said,) = objections({place: text})
    assert said.startswith("takes or returns something other than tensors in tuples, lists and dicts")


def sized(*sizes: object) -> dict[str, object]:
    return {"sizes": [{"as_int": size} for size in sizes]}


@pytest.mark.parametrize("sizes", [(), (0,), (1 << 40,), (1 << 20, 1 << 20), (1 << 41, 0)])
def test_tensors_that_a_device_could_hold_are_accepted(sizes: tuple[int, ...]):
    assert list(objections(sized(*sizes))) == []


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        (((1 << 40) + 1,), "1099511627777"),
        ((1 << 20, 1 << 20, 2), "1048576x1048576x2"),
        ((-1,), "-1"),
        ((2.5,), "2.5"),
        ((12,) * 31, "x".join(["12"] * 20) + "x"),  # 60 characters of it
    ],
)
def test_tensors_that_no_device_can_hold_are_refused(sizes: tuple[object, ...], shown: str):
    said = [text for text in objections(sized(*sizes)) if text.startswith("holds a tensor")]
    assert said == [f"holds a tensor of {shown} elements, which no device can hold"]


@pytest.mark.parametrize(
    ("number", "fits"), [(2**63 - 1, True), (-(2**63), True), (2**63, False), (-(2**63) - 1, False)]
)
def test_numbers_have_64_bits(number: int, fits: bool):
    assert (list(objections({"a": number})) == []) is fits


def test_notes_are_not_read():
    assert (
        list(objections({"metadata": {"a": 2**63}, "guards_code": ["x y"], "a": {"treespec_namedtuple_fields": 2**63}}))
        == []
    )
