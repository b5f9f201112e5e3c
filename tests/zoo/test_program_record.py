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
