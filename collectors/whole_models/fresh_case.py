"""What a fresh process measures: a user's or a library's model, built as its code says, with its inputs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

Call = Callable[[], Any]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What a process measures.

    Attributes:
        model: `FILE.py:CALLABLE`, where the callable takes a batch size; or a model of torchvision or `timm:NAME`.
        batch_size: of the inputs.
        modes: of torch.compile.
        device: `cpu` or `cuda`.
        run: `latency`, with the modes compiled before the turn; or `cold` and `warm`, with compilation timed.
        seconds: of each series of calls.
        rounds: of eager and compiled series in turn.
    """

    model: str
    batch_size: int
    modes: tuple[str, ...]
    device: str
    run: str
    seconds: float = 0.1
    rounds: int = 2

    @property
    def only_mode(self) -> str:
        """The mode, if there is one alone: what a record without a result is filed under."""
        return self.modes[0] if len(self.modes) == 1 else ""


@dataclass(slots=True)
class Case:
    """A built model, and what has been found of it in one mode after another."""

    job: Job
    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    reference: list[torch.Tensor] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    compiled: dict[str, Call] = field(default_factory=dict)

    @property
    def eager(self) -> Call:
        """The call of the model as it is."""
        return partial(self.module, *self.arguments, **self.keywords)

    def outputs(self, call: Callable[..., Any]) -> list[torch.Tensor]:
        """Copies of all tensors that a call on copies of the inputs returns."""
        import torch
        from torch.utils._pytree import tree_leaves, tree_map_only

        copied = tree_map_only(torch.Tensor, torch.clone, (self.arguments, self.keywords))
        found = tree_leaves(call(*copied[0], **copied[1]))
        return [leaf.detach().clone() for leaf in found if isinstance(leaf, torch.Tensor)]


def build(job: Job) -> Case:
    """The model as its code makes it, moved to the device with its inputs; values of inputs are kept."""
    import torch
    from torch.utils._pytree import tree_map_only

    torch.manual_seed(0)
    if ".py:" in job.model:
        module, inputs = _users_model(job)
    else:
        from collectors.whole_models.timing import build as build_library_model

        options = {"batch_size": job.batch_size, "precision": "float32", "layout": "nchw"}
        module, inputs = build_library_model({"model": job.model, **options}, job.device)
    inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(job.device), inputs)
    module = module.to(job.device)
    if isinstance(inputs, Mapping):
        return Case(job, module, (), dict(inputs))
    return Case(job, module, tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), {})


def _users_model(job: Job) -> tuple[nn.Module, Any]:
    path, _, name = job.model.rpartition(":")
    if "torchvision" in Path(path).read_text(encoding="utf-8"):
        from costmodel.zoo import load_torchvision

        load_torchvision()  # also where its compiled operators do not load
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec
    assert spec.loader
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = namespace
    spec.loader.exec_module(namespace)
    module, inputs = getattr(namespace, name)(job.batch_size)
    return module, inputs
