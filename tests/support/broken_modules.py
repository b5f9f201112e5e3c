"""Random modules as source files: layers with statements between that break the graph of torch.compile, or do not."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH = 8
LAYERS = (
    "x = self.linear{0}(x)",
    "x = torch.relu(self.linear{0}(x))",
    "x = torch.nn.functional.gelu(x) + x",
    "x = torch.nn.functional.layer_norm(x, (8,)).clone()",
    "x = torch.cat([x, x.sigmoid()], 1)[:, ::2]",
)
BREAKS = {
    "print": "print('at', x.shape)",
    "log": "LOG.warning('at %s', x.shape)",
    "clock": "begun = time.perf_counter()",
    "disabled": "x = outside(x)",
    "item": "x = x * x.sum().item()",
    "float": "x = x * float(x.mean())",
    "branch": "x = x + 1 if x.sum() > 0 else x - 1",
    "tolist": "x = x * x[0, :1].tolist()[0]",
    "nonzero": "x = x + torch.nonzero(x[:, 0] > -1e30).shape[0]",
    "numpy": "x = x * float(x.detach().cpu().numpy().mean())",
    "copied": "x = copy.deepcopy(x)",
    "mask": "x = x + x[x[:, 0] > -1e30].shape[0]",
    "where": "x = x + torch.where(x[:, 0] > -1e30)[0].shape[0]",
    "check": "if torch.isnan(x).any(): raise ValueError('not a number')",
    "close": "x = x if torch.allclose(x, x + 1) else x * 2",
    "random": "x = x * random.random()",
    "generator": "x = x + torch.randn(x.shape, generator=GENERATOR)",
    "saved": "torch.save(x, io.BytesIO())",
    "seeded": "torch.manual_seed(0); x = x + torch.rand_like(x)",
}
NO_BREAKS = {
    "deepcopy": "factors = copy.deepcopy([1.0, 2.0])",
    "constant": "x = x * float(np.sqrt(2.0))",
    "shape": "x = x if x.shape[0] > 1 else x + 1",
    "assertion": "assert x.dim() == 2",
    "text": "name = f'{x.shape} {x.dtype}'",
    "no_grad": "with torch.no_grad(): x = x.sin()",
    "written": "x = x.clone(); x.mul_(2)",
    "filled": "x = x.masked_fill(x < -1e30, 0.0)",
    "partial": "x = functools.partial(torch.nn.functional.leaky_relu, negative_slope=0.1)(x)",
    "generated": "x = sum(x * factor for factor in (1.0, 2.0))",
    "unpacked": "x, *rest = (part for part in (x, x.shape, None))",
    "closure": "scaled = lambda y: y * x; x = scaled(x)",
    "managed": "with contextlib.nullcontext(): x = x.cos()",
    "environment": "x = x if os.environ.get('NOT_SET') is None else x * 2",
}
READS = ("item", "float", "branch", "tolist", "nonzero", "numpy", "mask", "where", "check", "close")
"""Statements that read values of tensors."""
_HEAD = """import contextlib, copy, functools, io, logging, os, random, time, warnings
import numpy as np
import torch
from torch import nn

LOG = logging.getLogger("model")
GENERATOR = torch.Generator()

@torch.compiler.disable
def outside(x):
    return x.tanh() * 2

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for index in range({count}):
            setattr(self, f"linear{{index}}", nn.Linear(8, 8))

    def forward(self, x):
"""
_numbers = itertools.count()


@dataclass(frozen=True)
class Broken:
    """A module, and the places `file:line` of the statements that break its graph, in order."""

    module: nn.Module
    places: tuple[str, ...]


def build(directory: Path, steps: list[str]) -> Broken:
    """Module of a source file with these steps: names of statements, or indices of layers as text."""
    name = f"broken{next(_numbers)}"
    path = directory / f"{name}.py"
    lines = _HEAD.format(count=len(steps)).splitlines()
    places = []
    for index, step in enumerate(steps):
        known = BREAKS | NO_BREAKS
        lines.append(" " * 8 + (known[step] if step in known else LAYERS[int(step)].format(index)))
        if step in BREAKS:
            places.append(f"{name}.py:{len(lines)}")
    path.write_text("\n".join([*lines, "        return x", ""]))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    torch.manual_seed(0)
    return Broken(source.Model().eval(), tuple(places))


HOST_ONLY = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.detach.default)
"""Operators without a kernel: values that Python has and Dynamo passes as tensors, and aliases."""


class Counting(TorchDispatchMode):
    """Counts of ATen operators by name, without those of HOST_ONLY."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_ONLY:
            return func(*args, **(kwargs or {}))
        self.counts[func._schema.name.removeprefix("aten::").replace("::", "_").removesuffix("_")] += 1
        return func(*args, **(kwargs or {}))


def entered_by_torch(module: nn.Module, *inputs: torch.Tensor) -> list[Counter[str]]:
    """Operators of each graph that a late call of the compiled module enters, counted inside the graph."""
    return run_by_torch(module, *inputs)[0]


MOST_CALLS = 12


def run_by_torch(module: nn.Module, *inputs: torch.Tensor) -> tuple[list[Counter[str]], int]:
    """Operators of each graph that a call enters once calls compile nothing, and the number of compiled graphs."""
    entered: list[Counter[str]] = []
    compiled: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(len(compiled))

        def run(*args: Any) -> Any:
            with Counting() as counting:
                result = graph.forward(*args)
            entered.append(counting.counts)
            return result

        return run

    torch._dynamo.reset()
    model = torch.compile(module, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = [-2, -1]
        while before[-2] < len(compiled) and len(before) < MOST_CALLS:
            before.append(len(compiled))
            entered.clear()
            model(*[tensor.clone() for tensor in inputs])
    torch._dynamo.reset()
    return entered, len(compiled)
