"""Cases of `costmodel predict`: models by batch sizes by hardware. A model is captured once a batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from costmodel.cli import streams
from costmodel.cli.output import running_user_code
from costmodel.cli.page_facts import drawing_of
from costmodel.cli.run import message_of, print_traceback

if TYPE_CHECKING:
    from torch import nn

    from costmodel.ir import Graph
    from costmodel.prediction.arithmetic import Arithmetic
    from costmodel.prediction.training_request import TrainingRequest
    from costmodel.report import Report
    from costmodel.zoo import Loaded


@dataclass(frozen=True, slots=True)
class Case:
    """A model at one batch size.

    Attributes:
        index: number of the case, in the order of the arguments.
        model: model as on the command line.
        batch_size: images in a forward pass; None for the default.
    """

    index: int
    model: str
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Options that all cases share; each case is predicted for each `hardware`."""

    hardware: tuple[str, ...]
    img_size: int | None
    precision: str | None
    channels_last: bool
    arithmetic: Arithmetic
    explain: bool
    host: str | None
    shapes: tuple[tuple[int, ...], ...]
    frontend: str
    check: bool
    quiet: bool
    debug: bool
    draw: bool = False
    training: TrainingRequest | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted case: its report, and its graph as SVG, empty if it was not to be drawn."""

    report: Report
    drawing: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that could not be predicted.

    Attributes:
        case: the case.
        hardware: profiles that it could not be predicted for.
        message: the error's line.
    """

    case: Case
    hardware: tuple[str, ...]
    message: str


def cases_of(models: Sequence[str], batch_sizes: Sequence[int] | None) -> tuple[Case, ...]:
    """Each model at each batch size, in the order of the arguments; repeated batch sizes count once."""
    sizes: Sequence[int | None] = tuple(dict.fromkeys(batch_sizes)) if batch_sizes else (None,)
    pairs = ((model, size) for model in models for size in sizes)
    return tuple(Case(index, model, size) for index, (model, size) in enumerate(pairs))


def predict_case(case: Case, settings: Settings) -> list[Predicted | Failure]:
    """Capture a case and predict it for each hardware.

    A case for one hardware raises its error; for several, an error of one hardware leaves the others.

    Raises:
        CostmodelError: the model cannot be captured, or predicted for the only hardware.
    """
    from costmodel.capture.frontends import convert
    from costmodel.cli.checking import checking
    from costmodel.zoo import load

    is_checked = settings.check or settings.frontend == "dynamo"
    request: dict[str, Any] = {"batch_size": case.batch_size, "img_size": settings.img_size}
    request |= {"precision": settings.precision, "channels_last": settings.channels_last}
    with running_user_code(case.model):
        loaded = load(case.model, **request)
        is_converted = settings.frontend not in ("run", "dynamo")
        module = convert(loaded.module, loaded.inputs, settings.frontend) if is_converted else loaded.module
        how = checking(case.model, request, check=is_checked, quiet=settings.quiet)
        if settings.frontend != "run":
            how["is_whole"] = False
        how |= {"compiled": loaded.module, "amp": settings.arithmetic.amp}
        made = _of_pass if settings.training is None else _of_step
        predicted = made(module, loaded, settings, how, is_checked)

    if len(settings.hardware) == 1:
        return [predicted(settings.hardware[0])]
    outcomes: list[Predicted | Failure] = []
    for name in settings.hardware:
        try:
            outcomes.append(predicted(name))
        except Exception as error:  # noqa: BLE001 - one hardware's fault must not stop the others
            outcomes.append(_failure(case, (name,), error, settings.debug))
    return outcomes


def _reasons(graph: Graph, capture: Callable[..., Graph], how: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Arguments of reasons beside the graph: the pass under autocast, captured as the graph was."""
    if not settings.explain:
        return {}
    from costmodel.prediction.faster_settings import AMP, graph_under_amp

    again = partial(capture, **how | {"amp": AMP})
    return {"under_amp": graph_under_amp(graph, again, settings.arithmetic, settings.hardware)}


Predicting = Callable[[str], Predicted]
"""Prediction of a captured case for the hardware of a name."""


def _of_pass(
    module: nn.Module, loaded: Loaded, settings: Settings, how: dict[str, Any], _is_checked: bool
) -> Predicting:
    """Capture a forward pass."""
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.prediction.predict import predict_captured

    graph = capture_with_partition(module, loaded.inputs, loaded.name, **how)
    again = partial(capture_with_partition, module, loaded.inputs, loaded.name)
    reasons = _reasons(graph, again, how, settings)

    def predicted(hardware: str) -> Predicted:
        options: dict[str, Any] = {"explain": settings.explain, "host": settings.host, "shapes": settings.shapes}
        options |= {"arithmetic": settings.arithmetic, **reasons}
        report = predict_captured(graph, loaded.inputs, hardware=hardware, **options)
        report = replace(report, warnings=(*loaded.warnings, *report.warnings))
        return Predicted(report, drawing_of(graph, report) if settings.draw else "")

    return predicted


def _of_step(
    module: nn.Module, loaded: Loaded, settings: Settings, how: dict[str, Any], is_checked: bool
) -> Predicting:
    """Capture a training step, which is predicted in training mode whatever mode the model is in."""
    from costmodel.prediction.training import capture_step
    from costmodel.prediction.training_request import graphs_in_training, predict_captured_step

    request = settings.training
    assert request is not None  # by the caller
    step = capture_step(module, loaded.inputs, loaded.name, amp=settings.arithmetic.amp)
    graphs = graphs_in_training(module, loaded.inputs, loaded.name, **how) if is_checked else None

    def predicted(hardware: str) -> Predicted:
        options: dict[str, Any] = {"host": settings.host, "graphs": graphs, "explain": settings.explain}
        report = predict_captured_step(step, request, settings.arithmetic, hardware=hardware, **options)
        return Predicted(report)

    return predicted


def predict_cases(cases: Sequence[Case], settings: Settings, jobs: int) -> Iterator[list[Predicted | Failure]]:
    """Outcomes of each case in order, in several processes if `jobs` is above 1; a failed case stops no other."""
    if jobs == 1:
        yield from (_attempt((case.index, case, settings)) for case in cases)
        return
    from collectors.processes.process_pool import in_parallel

    numbered = [(case.index, case, settings) for case in cases]
    done: dict[int, list[Predicted | Failure]] = {}
    following = 0
    for (index, case, _), found in in_parallel(
        _attempt, numbered, min(jobs, len(cases)), math.inf, {}, hang_seconds=math.inf
    ):
        if isinstance(found, BaseException):
            done[index] = [_failure(case, settings.hardware, found, False)]
        else:
            done[index] = found
        while following in done:  # in the order of the arguments
            yield done.pop(following)
            following += 1


def _attempt(job: tuple[int, Case, Settings]) -> list[Predicted | Failure]:
    _, case, settings = job
    streams.set_apart()  # a worker process has streams of its own
    try:
        return predict_case(case, settings)
    except Exception as error:  # noqa: BLE001 - one model's fault must not stop the others
        return [_failure(case, settings.hardware, error, settings.debug)]


def _failure(case: Case, hardware: tuple[str, ...], error: BaseException, debug: bool) -> Failure:
    if debug:
        print_traceback()
    return Failure(case, hardware, message_of(error))


def failure_lines(failures: Sequence[Failure], cases: Sequence[Case], hardware: Sequence[str]) -> list[str]:
    """A line for each failure; one for a model that fails in every case for the same reason.

    Args:
        failures: failed cases.
        cases: every case of the command.
        hardware: every profile of the command.
    """
    lines = []
    for failure in failures:
        case = failure.case
        sizes = sum(one.model == case.model for one in cases)
        alike = [one for one in failures if (one.case.model, one.message) == (case.model, failure.message)]
        place = case.model
        if sum(len(one.hardware) for one in alike) < sizes * len(hardware):
            place += f", batch {case.batch_size}" if sizes > 1 else ""
            place += f", on {' and '.join(failure.hardware)}" if len(failure.hardware) < len(hardware) else ""
        lines.append(f"{place}: {failure.message}")
    return list(dict.fromkeys(lines))
