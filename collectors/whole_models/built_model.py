"""A whole model with real weights on a device, and its inputs."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.workloads.model_cases import WholeModelCase
from costmodel.errors import RequestError
from costmodel.execution.torch_settings import under_autocast
from costmodel.prediction.arithmetic import AMP, HIGHEST, MATMUL_PRECISIONS
from costmodel.zoo.torchvision_import import tolerate_missing_operators
from costmodel.zoo.user_code import importable

if TYPE_CHECKING:
    import torch
    from torch import nn

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A module in evaluation mode on a device, and the inputs it is called with.

    Attributes:
        module: the module.
        arguments: its positional inputs.
        keywords: its keyword inputs.
        autocast: device type and dtype of the autocast region around each call; None for none.
    """

    module: nn.Module
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    autocast: tuple[str, torch.dtype] | None = None

    @property
    def is_capturable(self) -> bool:
        """Whether a CUDA graph can hold a call."""
        return True

    @property
    def eager(self) -> Call:
        """Eager call on the inputs."""
        return self.call(self.module)

    def call(self, function: Callable[..., Any]) -> Call:
        """Call of a function on the inputs."""
        return partial(self._around(function), *self.arguments, **self.keywords)

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function in an autocast region of its own at each call, which casts each weight once."""
        return function if self.autocast is None else under_autocast(function, *self.autocast)

    def input_shape(self) -> list[int]:
        """Shape of the first input tensor."""
        import torch
        from torch.utils._pytree import tree_leaves

        leaves = tree_leaves((self.arguments, dict(self.keywords)))
        return next((list(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)), [])

    def outputs(self, function: Callable[..., Any]) -> list[torch.Tensor]:
        """Copies of all tensors that a function returns for copies of the inputs."""
        import torch
        from torch.utils._pytree import tree_leaves, tree_map_only

        arguments, keywords = tree_map_only(torch.Tensor, torch.clone, (self.arguments, dict(self.keywords)))
        found = tree_leaves(self._around(function)(*arguments, **keywords))
        return [leaf.detach().clone() for leaf in found if isinstance(leaf, torch.Tensor)]


def build(case: WholeModelCase, device: str) -> BuiltModel:
    """Build a model of torchvision or timm with random weights, or of FILE.py:CALLABLE as the file builds it.

    The precision of float32 matmuls and `cudnn.benchmark`, which torch keeps for the process, become those of the case.

    Raises:
        RequestError: the model is unknown, of another source, or takes several inputs; or a precision is impossible.
    """
    import torch

    amp, matmuls = case.get("amp"), case.get("matmul_precision", HIGHEST)
    if amp not in (None, *AMP) or matmuls not in MATMUL_PRECISIONS:
        raise RequestError(
            f"{case['model']}: amp={amp}, matmul_precision={matmuls}; amp is one of {', '.join(AMP)} and "
            f"matmul_precision one of {', '.join(MATMUL_PRECISIONS)}"
        )
    torch.set_float32_matmul_precision(matmuls)
    torch.backends.cudnn.benchmark = bool(case.get("cudnn_benchmark"))
    built = _user_model(case, device) if ".py:" in case["model"] else _library_model(case, device)
    return replace(built, autocast=(device.partition(":")[0], getattr(torch, amp)) if amp else None)


def _library_model(case: WholeModelCase, device: str) -> BuiltModel:
    """Build a library's model. costmodel.zoo checks the request and gives the input's shape.

    The module is built anew, as the zoo's is on the meta device, where tables that a constructor computes (swin's
    position indices) have no values.
    """
    import torch

    from costmodel import zoo

    spec = case["model"].removeprefix("tv:")  # as case files of old name torchvision's models
    options = {"batch_size": case["batch_size"], "img_size": case.get("img_size"), "precision": case["precision"]}
    inputs = zoo.load(spec, **options, channels_last=case["layout"] == "nhwc").inputs
    if len(inputs) != 1 or not isinstance(inputs, tuple) or not isinstance(inputs[0], torch.Tensor):
        raise RequestError(f"{spec} takes {len(inputs)} inputs; only models of one image batch are measured")
    memory_format = torch.channels_last if case["layout"] == "nhwc" else torch.contiguous_format
    module = _real_module(spec).eval().to(device, inputs[0].dtype)
    module = module.to(memory_format=memory_format)  # type: ignore[call-overload]
    x = torch.randn(inputs[0].shape, device=device, dtype=inputs[0].dtype)
    return BuiltModel(module, (x.contiguous(memory_format=memory_format),))


def _real_module(spec: str) -> nn.Module:
    from costmodel.zoo import load_torchvision

    source, colon, name = spec.partition(":")
    models = load_torchvision().models  # timm imports torchvision, and may find it broken
    module: nn.Module
    if source == "timm" and name:
        import timm

        module = timm.create_model(name, pretrained=False)
    elif colon or spec.endswith(".pt2"):
        raise RequestError(f"{spec}: only models of torchvision, timm and FILE.py:CALLABLE can be measured")
    else:
        builder = models.get_model_builder(spec)
        options = {key: None for key in ("weights", "weights_backbone") if key in inspect.signature(builder).parameters}
        unset = {"init_weights": False} if spec in ("googlenet", "inception_v3") else {}
        module = builder(**options, **unset)
    return module


def _user_model(case: WholeModelCase, device: str) -> BuiltModel:
    """Build a model and its inputs by a file's callable, which takes the batch size; values of inputs are kept."""
    import torch
    from torch.utils._pytree import tree_map_only

    torch.manual_seed(0)
    module, inputs = _callable_of(case["model"])(case["batch_size"])
    inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)
    module = module.to(device)
    if isinstance(inputs, Mapping):
        return BuiltModel(module, (), dict(inputs))
    return BuiltModel(module, tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,))


def _callable_of(model: str) -> Callable[[int], tuple[nn.Module, Any]]:
    path, _, name = model.rpartition(":")
    if not Path(path).is_file():
        raise RequestError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec
    assert spec.loader
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = namespace
    tolerate_missing_operators()  # of a torchvision whose library does not load
    with importable(Path(path).resolve().parent):
        spec.loader.exec_module(namespace)
    function: Callable[[int], tuple[nn.Module, Any]] = getattr(namespace, name)
    return function
