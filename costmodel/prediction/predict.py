"""Module or name of a model -> report: effect of torch.compile, predicted without running the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from costmodel import checks
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import RequestError
from costmodel.ir import Graph
from costmodel.kernels.optimizers import OPTIMIZERS
from costmodel.prediction.arithmetic import AMP, DEFAULT, HIGHEST, MATMUL_PRECISIONS, Arithmetic
from costmodel.prediction.hosts import on_host, with_host
from costmodel.prediction.named_models import WAYS, capture_named
from costmodel.prediction.predict_graph import predict_graph
from costmodel.prediction.training_request import (
    TrainingRequest,
    graphs_in_training,
    predict_captured_step,
    requested,
)
from costmodel.report.types import Report

if TYPE_CHECKING:
    import torch
    from torch import nn


def _model_fault(model: object) -> str | None:
    return None if isinstance(model, str) and model else module_fault(model)


@takes_turns
@checked(
    module=_model_fault,
    inputs=checks.optional(inputs_fault),
    batch_size=checks.optional(checks.whole),
    img_size=checks.optional(checks.whole),
    precision=checks.optional(checks.text),
    channels_last=checks.flag,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    explain=checks.flag,
    host=checks.optional(checks.host),
    shapes=checks.each(checks.shape, "shapes, which are sequences of sizes above 0"),
    check=checks.flag,
    capture=checks.one_of(WAYS),
    amp=checks.optional(checks.one_of(AMP)),
    matmul_precision=checks.one_of(MATMUL_PRECISIONS),
    cudnn_benchmark=checks.flag,
    training=checks.flag,
    optimizer=checks.optional(checks.one_of(OPTIMIZERS)),
    loss=checks.optional(checks.must_be("a function", callable)),
)
def predict(
    module: nn.Module | str,
    inputs: Inputs | None = None,
    *,
    batch_size: int | None = None,
    img_size: int | None = None,
    precision: str | None = None,
    channels_last: bool = False,
    hardware: str | None = None,
    model_name: str | None = None,
    explain: bool = False,
    host: str | float | None = None,
    shapes: Sequence[Sequence[int]] = (),
    capture: str = "run",
    check: bool = True,
    amp: str | None = None,
    matmul_precision: str = HIGHEST,
    cudnn_benchmark: bool = False,
    training: bool = False,
    optimizer: str | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> Report:
    """Predict what torch.compile does to a model, without running it. Options are those of the command line.

    Args:
        module: module in evaluation mode, with real or meta parameters, which is not changed; or the name of a model:
            `resnet50` (torchvision), `timm:NAME`, `hf:CONFIG`, `path/to/file.py:callable`, `model.pt2`.
        inputs: positional inputs of a module, or a mapping of keyword inputs: real, meta or fake tensors, also inside
            lists, tuples and dicts. A list of images is a batch. A model given by name brings its own.
        batch_size: images in a forward pass of a model given by name; None for 1.
        img_size: height and width of its images; None for the model's own.
        precision: `float32`, `float16` or `bfloat16` for its parameters and inputs; None as on the command line.
        channels_last: whether its parameters and inputs are in channels_last.
        hardware: name of a profile; None for this machine's GPU if it has a profile, else the default.
        model_name: name of the model in the report; None for its class, or the given name.
        explain: whether to add the reasons.
        host: host whose CPU launches the kernels: the name of a calibrated host (`costmodel collect host` runs the host
            probe on it), or its speed relative to the profile's host. None: an uncalibrated host; the prediction is for
            the profile's host, an undisturbed machine, and the intervals cover slower hosts too.
        shapes: further shapes of the main input, whose recompilations `explain` lists.
        capture: way of capture: `run`, `fx`, `export` or `dynamo`.
        check: whether Dynamo traces the model to find graph breaks; else the pass is predicted as one graph.
        amp: `float16` or `bfloat16` for a call under `torch.autocast("cuda", ...)`; None for the caller's region, if
            it is in one. A model that enters autocast itself is predicted as it is.
        matmul_precision: as of `torch.set_float32_matmul_precision`: above `highest`, float32 matmuls compute in TF32.
        cudnn_benchmark: whether `torch.backends.cudnn.benchmark` is on.
        training: whether to predict a training step: forward pass in training mode, loss, backward pass, optimizer.
        optimizer: optimizer of the step: `sgd` (the default), `momentum`, `adam` or `adamw`.
        loss: function from the module's result to the loss of the step, a scalar; None for cross entropy of results of
            two dimensions, else the sum of the means of all results. It runs eagerly, as does the optimizer.

    Raises:
        UnknownModelError: there is no such model; similar names are suggested.
        UnknownHardwareError: there is no such profile.
        RequestError: there is no such host, a shape has another number of dimensions than the main input, or an option
            is not one of a module.
        CaptureError: the module cannot be captured, or has nothing to compile.
        ProfileError: the profile is damaged or of another version.
    """
    request = {"batch_size": batch_size, "img_size": img_size, "precision": precision, "channels_last": channels_last}
    arithmetic = Arithmetic(amp, matmul_precision, cudnn_benchmark)
    arithmetic.check_precision(precision)
    if (step := requested(training, optimizer, loss)) is not None:
        return _predict_training(
            module, inputs, request, step, arithmetic,
            name=model_name, way=capture, check=check, hardware=hardware, host=host, explain=explain, shapes=shapes,
        )  # fmt: skip
    if isinstance(module, str):
        if inputs is not None:
            raise RequestError(f"{module} brings its own inputs; leave out inputs, or give the module itself")
        graph, inputs, warnings = capture_named(module, request, way=capture, check=check, amp=amp)
        graph = replace(graph, name=model_name or graph.name)
    else:
        graph, warnings = _captured(module, _inputs_of(inputs, request), model_name, capture, check, amp)
    options: dict[str, Any] = {"explain": explain, "host": host, "shapes": shapes, "arithmetic": arithmetic}
    if explain:
        from costmodel.prediction import faster_settings

        again = partial(_again, module, inputs, request, graph.name, capture, check)
        options["under_amp"] = faster_settings.graph_under_amp(graph, again, arithmetic, (hardware,))
    report = predict_captured(graph, inputs or (), hardware=hardware, **options)
    return replace(report, warnings=(*warnings, *report.warnings))


def _predict_training(
    module: nn.Module | str,
    inputs: Inputs | None,
    request: dict[str, Any],
    step: TrainingRequest,
    arithmetic: Arithmetic,
    *,
    name: str | None,
    way: str,
    check: bool,
    hardware: str | None,
    host: str | float | None,
    explain: bool,
    shapes: Sequence[Sequence[int]],
) -> Report:
    """Report of a training step; arguments and errors are those of `predict`."""
    from costmodel.prediction.training import capture_step
    from costmodel.zoo import load
    from costmodel.zoo.one_graph import is_known

    if way != "run" or shapes:
        raise RequestError("a training step is captured by running it, and at one shape; leave capture and shapes out")
    if isinstance(module, str):
        if inputs is not None:
            raise RequestError(f"{module} brings its own inputs; leave out inputs, or give the module itself")
        loaded = load(module, **request)
        whole = is_known(module)
        module, inputs, name = loaded.module, loaded.inputs, name or loaded.name
    else:
        inputs, whole, name = _inputs_of(inputs, request), False, name or type(module).__name__
    captured = capture_step(module, inputs, name, loss=step.loss, amp=arithmetic.amp)
    graphs = graphs_in_training(module, inputs, name, check=True, is_whole=whole, amp=arithmetic.amp) if check else None
    options: dict[str, Any] = {"hardware": hardware, "host": host, "explain": explain, "graphs": graphs}
    return predict_captured_step(captured, step, arithmetic, images=images_in(inputs), **options)


def _again(
    module: nn.Module | str, inputs: Inputs | None, request: dict[str, Any], name: str, way: str, check: bool
) -> Graph:
    """The graph of a model captured again, under the autocast that is tried."""
    from costmodel.prediction.faster_settings import AMP as TRIED

    if isinstance(module, str):
        return capture_named(module, request, way=way, check=check, amp=TRIED)[0]
    assert inputs is not None  # as checked before
    return _captured(module, inputs, name, way, check, TRIED)[0]


def _inputs_of(inputs: Inputs | None, request: Mapping[str, Any]) -> Inputs:
    """Inputs of a module.

    Raises:
        RequestError: there are none, or an option is given that its own inputs and parameters decide.
    """
    if inputs is None:
        raise RequestError(f"inputs {inputs_fault(inputs)}")
    if given := [name for name, value in request.items() if value is not None and value is not False]:
        raise RequestError(f"{given[0]} is an option of a model given by name; give a module and inputs that have it")
    return inputs


def _captured(
    module: nn.Module, inputs: Inputs, name: str | None, way: str, check: bool, amp: str | None
) -> tuple[Graph, tuple[str, ...]]:
    """Graph of a module, and warnings."""
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.zoo.training_mode import AS_IT_IS, training_warning

    name = name or type(module).__name__
    training = training_warning(module, AS_IT_IS)
    captured = module
    if way not in ("run", "dynamo"):
        from costmodel.capture.frontends import convert

        captured = convert(module, inputs, way)
    graph = capture_with_partition(captured, inputs, name, check=check or way == "dynamo", compiled=module, amp=amp)
    return graph, (training,) if training else ()


def predict_captured(
    graph: Graph,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    explain: bool = False,
    host: str | float | None = None,
    shapes: Sequence[Sequence[int]] = (),
    arithmetic: Arithmetic = DEFAULT,
    under_amp: Graph | None = None,
) -> Report:
    """Predict a graph captured from a module with these inputs; arguments and errors are those of `predict`.

    `under_amp` is the pass captured under autocast, which `explain` compares with.
    """
    profile, chosen = on_host(hardware, host, arithmetic)
    found = replace(predict_graph(graph, profile, images_in(inputs)), arithmetic=arithmetic.words)
    report = with_host(found, profile, chosen, host)
    if explain:
        from costmodel.prediction.explain import explain as reasons

        if odd := [shape for shape in shapes if len(shape) != len(report.input_shape)]:
            wanted, given = ("x".join(map(str, shape)) for shape in (report.input_shape, odd[0]))
            raise RequestError(f"the shape {given} does not fit this model's input; give one like {wanted}")
        return replace(report, explanation=reasons(graph, profile, report, shapes, under_amp))
    return report


def images_in(inputs: Inputs) -> int | None:
    """Number of images in a list of images; None for an input that is no list."""
    call = Arguments.of(inputs)
    first = next(iter((*call.args, *call.kwargs.values())), None)
    return len(first) if isinstance(first, (list, tuple)) else None
