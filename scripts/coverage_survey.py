"""Survey of the models that costmodel can predict: each is built, captured and lowered in a process of its own.

A survey is a table of outcomes, one row a model. It survives models that crash, hang or exhaust memory; an interrupted
one resumes.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.processes.process_pool import ONE_THREAD, in_parallel
from costmodel.errors import CostmodelError, DatasetError, RequestError
from costmodel.files import replacing

if TYPE_CHECKING:
    from costmodel.ir import Graph

OK, PARTIAL, UNSUPPORTED, FAILED = "ok", "partial", "unsupported", "failed"
STATUSES = (OK, PARTIAL, UNSUPPORTED, FAILED)
"""Captured whole; captured with graph breaks; with operators that have no cost rule; not captured."""

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome for one model.

    Attributes:
        model: spec of the model.
        status: one of STATUSES.
        reason: one line; empty if the status is `ok`.
        operators: in the captured graph.
        eager_kernels: launched by eager execution.
        compiled_kernels: launched by the compiled model.
        seconds: to build, capture and lower the model.
    """

    model: str
    status: str
    reason: str = ""
    operators: int = 0
    eager_kernels: int = 0
    compiled_kernels: int = 0
    seconds: float = 0.0


COLUMNS = tuple(field.name for field in fields(Outcome))


def cover(spec: str) -> Outcome:
    """Build, capture and lower one model as `costmodel predict` does, eager and compiled."""
    from costmodel import zoo
    from costmodel.capture.trace import capture
    from costmodel.ir import parse
    from costmodel.prediction.layers import group_units
    from costmodel.timeline.issue_trace import compiled_program, eager_program

    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = zoo.load(spec)
            graph = capture(loaded.module, loaded.inputs, partial=True)
            if parse(str(graph)) != graph:
                return Outcome(spec, FAILED, "the graph cannot be parsed from its text")
            eager, compiled = eager_program(graph), compiled_program(graph)
            group_units(graph, compiled.kernels)
    except CostmodelError as error:
        return Outcome(spec, FAILED, _one_line(error), seconds=round(time.perf_counter() - begun, 2))
    status, reason = _judge(graph)
    counts = len(graph.ops), len(eager.kernels), len(compiled.kernels)
    return Outcome(spec, status, reason, *counts, round(time.perf_counter() - begun, 2))


def _judge(graph: Graph) -> tuple[str, str]:
    from costmodel.ir import operators as operators_module

    unknown = sorted({op.base for op in graph.ops if operators_module.lookup(op) is operators_module.UNKNOWN})
    if unknown:
        return UNSUPPORTED, "no rule for " + " ".join(unknown)
    if graph.breaks:
        return PARTIAL, "; ".join(str(item).removeprefix("break ") for item in graph.breaks)
    return OK, ""


def survey(
    specs: Iterable[str],
    table: Path,
    jobs: int = 1,
    timeout_seconds: float = TIMEOUT_SECONDS,
    tick: Callable[[Outcome], object] = lambda _: None,
) -> tuple[Outcome, ...]:
    """Outcomes of all models; those missing in the table are determined and appended one by one.

    Args:
        specs: of models.
        table: a CSV file, created if missing.
        jobs: processes at once.
        timeout_seconds: limit for one model.
        tick: called with each new outcome.

    Raises:
        DatasetError: the file is not a coverage table.
    """
    specs = tuple(dict.fromkeys(specs))
    known = {outcome.model: outcome for outcome in read_table(table)} if table.exists() else {}
    write_table(table, known.values())  # without a half-written last line
    missing = [spec for spec in specs if spec not in known]
    for spec, result in in_parallel(cover, missing, jobs, float("inf"), ONE_THREAD, timeout_seconds):
        outcome = result if isinstance(result, Outcome) else Outcome(spec, FAILED, _one_line(result))
        with table.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(asdict(outcome).values())
        known[spec] = outcome
        tick(outcome)
    return tuple(known[spec] for spec in specs)


def read_table(path: Path) -> tuple[Outcome, ...]:
    """Outcomes in a table; an unfinished last line is ignored.

    Raises:
        DatasetError: the file is not a coverage table.
    """
    text = path.read_text(encoding="utf-8")
    head, *rows = csv.reader(text[: text.rfind("\n") + 1].splitlines()) if "\n" in text else ([],)
    if tuple(head) != COLUMNS:
        raise DatasetError(f"{path} is not a coverage table: expected the columns {','.join(COLUMNS)}")
    try:
        return tuple(
            Outcome(model, status, reason, int(operators), int(eager), int(compiled), float(seconds))
            for model, status, reason, operators, eager, compiled, seconds in rows
        )
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: {_one_line(error)}") from error


def write_table(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write a table, or leave the old one."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(asdict(outcome).values() for outcome in outcomes)


def totals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Number of models by status, in the order of STATUSES."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {status: counts[status] for status in STATUSES}


def names_of(source: str) -> tuple[str, ...]:
    """Specs of every model of `torchvision`, `timm` or `hf` (vision architectures of transformers).

    Raises:
        RequestError: the source is unknown or not installed.
    """
    if source not in _NAMES:
        raise RequestError(f"unknown source {source!r}; choose one of {', '.join(_NAMES)}")
    from costmodel.zoo import load_torchvision

    load_torchvision()  # timm and transformers import torchvision, and its extension may be broken
    try:
        return tuple(_NAMES[source]())
    except ImportError as error:
        raise RequestError(f"{source} is not installed: pip install 'costmodel[{source}]' ({error})") from error


def _torchvision_names() -> Iterable[str]:
    from costmodel.zoo import load_torchvision

    names: list[str] = load_torchvision().models.list_models()
    return names


def _timm_names() -> Iterable[str]:
    import timm

    return [f"timm:{name}" for name in timm.list_models()]


def _hf_names() -> Iterable[str]:
    """Model types with a vision task or image inputs."""
    from costmodel.zoo.transformers_models import vision_model_types

    return [f"hf:{name}" for name in vision_model_types()]


_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "torchvision": _torchvision_names,
    "timm": _timm_names,
    "hf": _hf_names,
}
SOURCES = tuple(_NAMES)


def one_of_each_family(specs: Sequence[str]) -> tuple[str, ...]:
    """First timm model of each module that defines models, and all models that are not timm's."""
    import timm

    first: dict[str, str] = {}
    for spec in specs:
        source, _, name = spec.partition(":")
        first.setdefault(f"timm:{timm.models._registry._model_to_module[name]}" if source == "timm" else spec, spec)
    return tuple(first.values())


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, CostmodelError) else f"{type(error).__name__}: {text}"
