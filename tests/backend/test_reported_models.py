"""Networks as users report them, through the backend: outputs of eager execution, state written once a call."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.support.reported_models import MODELS
from tests.support.uncompiled import CPU, explained, uncompiled
from tests.support.user_modules import PASSES, UserModule


def outputs(name: str, backend: str):
    """Outputs of three calls, the module's state afterwards, and the compiled module."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = MODELS[name]().eval()
    fast = torch.compile(net, backend=backend, options=CPU if backend == "costmodel" else None)
    with torch.no_grad():
        found = [fast(torch.full((2, 3, 8, 8), value)) for value in (0.5, -1.0, 0.5)]
    return found, dict(net.named_buffers()), fast


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_eager_execution(name: str):
    with uncompiled():
        expected, written, _ = outputs(name, "eager")
        got, state, fast = outputs(name, "costmodel")
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(state, written, rtol=1e-3, atol=1e-4)
        assert len(explained(fast).graphs) > 0


PLANNED = {"Base", "Cached", "Attends", "UpDown", "Weighted", "Samples", "OwnFunction", "Hooked", "Windows", "Shared"}
"""Networks of one graph that a plan can run."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(PLANNED))
def test_those_of_one_pure_graph_are_planned(name: str):
    with uncompiled():
        _, _, fast = outputs(name, "costmodel")
        graphs = explained(fast).graphs
        assert {graph.choice for graph in graphs} == {"plan"}, "\n".join(map(str, graphs))


def results(name: str, backend: str):
    """Results of two calls of a user's forward pass."""
    torch._dynamo.reset()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    module = UserModule(PASSES[name]).eval()
    fast = torch.compile(module, backend=backend, options=CPU if backend == "costmodel" else None)
    with torch.no_grad():
        return [tensors_of(fast(torch.linspace(-1, 1, 32).reshape(4, 8))) for _ in range(2)]


def tensors_of(result: Any) -> list[torch.Tensor]:
    found = dataclasses.astuple(result) if dataclasses.is_dataclass(result) else result
    return [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PASSES)
def test_passes_of_users_give_eager_results(name: str):
    with uncompiled():
        try:
            expected = results(name, "eager")
        except Exception as error:  # noqa: BLE001 - whatever torch.compile cannot run at all
            pytest.skip(f"fails with backend='eager' too: {type(error).__name__}")
        torch.testing.assert_close(results(name, "costmodel"), expected, rtol=1e-3, atol=1e-4)
