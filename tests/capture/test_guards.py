"""Modules that a compiled call checks one by one: by hand."""

from __future__ import annotations

import pytest
from torch import nn

from costmodel.capture.trace import checked_modules
from costmodel.zoo import load


class Held(nn.Module):
    """A layer, and a container that may be empty."""

    def __init__(self, *inside: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.rest = nn.Sequential(*inside)


def test_without_containers_the_whole_tree_is_checked_as_one():
    assert checked_modules(nn.Linear(2, 2)) == 0
    assert checked_modules(Held()) == 0


def test_a_container_and_all_that_holds_it():
    assert checked_modules(Held(nn.ReLU())) == 2  # the root, its container
    assert checked_modules(nn.Sequential(Held(nn.ReLU()), nn.ReLU())) == 3  # both containers, and what is between
    assert checked_modules(nn.ModuleList([Held(), nn.ModuleDict({"a": nn.ReLU()})])) == 2


@pytest.mark.parametrize(("name", "expected"), [("alexnet", 3), ("resnet50", 13), ("mobilenet_v2", 72)])
def test_of_models(name: str, expected: int):
    """Alexnet: root, features, classifier; resnet50: root, four stages, four first blocks and their shortcuts.

    Mobilenet_v2: root, features, classifier, two layers, 17 blocks and their chains, in these 1 + 16 * 2 layers more.
    """
    assert checked_modules(load(name).module) == expected
