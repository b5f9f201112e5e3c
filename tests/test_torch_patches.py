"""Replaced functions of torch: nested, put back, and never seen by Dynamo, whatever imports it first."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from costmodel.torch_patches import originals, replaced


@pytest.fixture
def owner() -> types.SimpleNamespace:
    return types.SimpleNamespace(one=lambda: 1, two=lambda: 2)


def test_a_function_is_replaced_within_the_context(owner: types.SimpleNamespace) -> None:
    with replaced(owner, "one", lambda: 10), replaced(owner, "one", lambda: 100):
        assert (owner.one(), owner.two()) == (100, 2)
    assert owner.one() == 1


def test_originals_are_those_before_any_replacement(owner: types.SimpleNamespace) -> None:
    with replaced(owner, "one", lambda: 10), replaced(owner, "two", lambda: 20), replaced(owner, "one", lambda: 100):
        with originals():
            assert (owner.one(), owner.two()) == (1, 2)
        assert (owner.one(), owner.two()) == (100, 20)
    assert (owner.one(), owner.two()) == (1, 2)


def test_an_error_puts_functions_back(owner: types.SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="wrong"), replaced(owner, "one", lambda: 10), originals():
        raise ValueError("wrong")
    assert owner.one() == 1
    with originals():
        assert owner.one() == 1


IMPORTERS = {
    "checkpoint": "return torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)",
    "import": "import torch._dynamo.config; return self.linear(x)",
    "prediction": "costmodel.predict(Asks(), (x,), hardware='nvidia-h200'); return self.linear(x)",
    "attention": "costmodel.predict(Attends(), (torch.ones(2, 3, 4),), hardware='nvidia-h200'); return self.linear(x)",
}
"""Forward passes that import Dynamo, three of them in calls of libraries."""
CODE = """
import sys, warnings
import torch, torch.utils.checkpoint
import costmodel
from torch import nn
warnings.simplefilter("ignore")

class Asks(nn.Module):
    def forward(self, x):
        return x.to(torch.get_autocast_dtype("cpu")) * (2 if torch.cuda.is_available() else 3)

class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.heads(x, x, x)[0]

class Imports(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        {statements}

def graphs(module, **how):
    return costmodel.predict(module.eval(), (torch.rand(2, 3, 4),), hardware="nvidia-h200", **how).graphs

assert "torch._dynamo" not in sys.modules
graphs(Imports(), check=False)
assert "torch._dynamo" in sys.modules
for found in (graphs(Asks()), graphs(Attends())):
    assert found == costmodel.report.types.Graphs(1, True), found
"""


@pytest.mark.parametrize("name", IMPORTERS)
def test_dynamo_is_first_imported_inside_a_capture(name: str) -> None:
    subprocess.run([sys.executable, "-c", CODE.replace("{statements}", IMPORTERS[name])], check=True)
