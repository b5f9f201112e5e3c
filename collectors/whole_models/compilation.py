"""Compile a whole model in a mode of torch.compile; record time, errors, graph breaks and skipped CUDA graphs."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from collectors.whole_models.built_model import BuiltModel, Call
from collectors.whole_models.records import Record
from costmodel.errors import MeasurementError

if TYPE_CHECKING:
    import torch

MODES: Mapping[str, str | None] = {"default": None, "reduce-overhead": "reduce-overhead"}
"""Modes of torch.compile that are measured, and their names as torch.compile's argument."""
WARM_UP = 3
"""Calls before a compiled model is in its steady state: reduce-overhead records its CUDA graph in the second."""


def modes_on(device: str, wanted: Collection[str] = tuple(MODES)) -> Mapping[str, str | None]:
    """Wanted modes that differ on a device; CUDA graphs, and so reduce-overhead, exist on CUDA only."""
    chosen = {mode: option for mode, option in MODES.items() if mode in wanted}
    return chosen if device.startswith("cuda") or not wanted else {"default": None}


def synchronize(device: str) -> None:
    """Wait until the device has nothing to do."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def compile_mode(
    model: BuiltModel, mode: str, device: str, reference: Collection[torch.Tensor], record: Record
) -> Call:
    """Compile a model and warm it up; returns the compiled call.

    Writes into `record`: seconds of compilation and warm-up, the relative L2 error of the first output, the number of
    graph breaks, and under `compiled` the details.

    Args:
        model: the model.
        mode: a key of MODES.
        device: `cpu`, `cuda` or `cuda:N`.
        reference: outputs of eager execution.
        record: record of the case.

    Raises:
        MeasurementError: the model returns no tensor.
    """
    import torch

    start = time.perf_counter()
    from torch._dynamo import utils

    import_s = round(time.perf_counter() - start, 4)
    from costmodel.execution.inductor_compile import share_cache

    if not reference:
        raise MeasurementError("the model returns no tensor: results cannot be compared")
    share_cache()
    torch._dynamo.reset()
    utils.counters.clear()
    broken = len(getattr(utils, "graph_break_reasons", ()))
    start = time.perf_counter()
    with _skip_messages() as messages:
        compiled = torch.compile(model.module, mode=MODES[mode])
        wrap_s = round(time.perf_counter() - start, 4)
        call = model.call(compiled)
        calls_s = [_timed(call, device) for _ in range(WARM_UP)]
    record[f"{mode}_warm_compile_s"] = round(time.perf_counter() - start, 3)
    graphs, skips = utils.counters["stats"]["unique_graphs"], utils.counters["inductor"]["cudagraph_skips"]
    if breaks := sum(utils.counters["graph_break"].values()):
        record.setdefault("graph_breaks", {})[mode] = breaks
    errors = relative_errors(model.outputs(compiled), reference)
    record[f"{mode}_error"] = errors[0]
    record.setdefault("compiled", {})[mode] = {
        "import_s": import_s,
        "wrap_s": wrap_s,
        "calls_s": calls_s,
        "graphs": graphs,
        "cudagraph_skips": skips,
        "skip_messages": list(dict.fromkeys(messages)),
        "breaks": [_describe_break(reason) for reason in getattr(utils, "graph_break_reasons", [])[broken:]],
        "errors": errors,
    }
    return call


def _timed(call: Call, device: str) -> float:
    start = time.perf_counter()
    call()
    synchronize(device)
    return round(time.perf_counter() - start, 4)


class _Keep(logging.Handler):
    """Handler that puts warnings into a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.messages.append(record.getMessage()[:300])


@contextmanager
def _skip_messages() -> Iterator[list[str]]:
    """List that Inductor's warnings about skipped CUDA graphs are put into within the block."""
    messages: list[str] = []
    handler = _Keep(messages)
    loggers = [logging.getLogger(f"torch._inductor.{name}") for name in ("compile_fx", "cudagraph_trees", "utils")]
    loggers.append(logging.getLogger("torch._inductor.cudagraph_utils"))
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield messages
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _describe_break(reason: Any) -> dict[str, str]:
    """Source line of a graph break, and the first line of its reason."""
    stack = getattr(reason, "user_stack", None)
    where = f"{os.path.relpath(stack[-1].filename)}:{stack[-1].lineno}" if stack else ""
    return {"where": where, "reason": str(reason.reason).split("\n", 1)[0]}


def relative_errors(found: Collection[torch.Tensor], expected: Collection[torch.Tensor]) -> list[float | None]:
    """Relative L2 error of each output; None for one of another shape, or that is not finite."""
    return [_relative_error(one, other) for one, other in zip(found, expected, strict=False)]


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> float | None:
    import torch

    if found.shape != expected.shape:
        return None
    wide = torch.complex128 if found.is_complex() else torch.float64
    found, expected = found.to("cpu", wide), expected.to("cpu", wide)
    error = ((found - expected).norm() / expected.norm().clamp_min(1e-12)).item()
    return round(error, 9) if math.isfinite(error) else None


def phases() -> dict[str, float]:
    """Seconds of each phase of compilation that took at least a hundredth of one, as Dynamo counted them."""
    from torch._dynamo.utils import compilation_time_metrics

    sums = {name: round(sum(values), 3) for name, values in compilation_time_metrics.items()}
    return {name: seconds for name, seconds in sums.items() if seconds >= 0.01}
