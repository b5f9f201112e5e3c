"""Settings that an expert of torch.compile would try, beside plans: how each is built and measured."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from costmodel.errors import own_words

ROUNDS = 7
OURS = ("plan", "backend")


@dataclass(frozen=True, slots=True)
class Setting:
    """Way to run a model.

    Attributes:
        mode: mode of torch.compile; empty for eager execution.
        tuned: whether with channels_last, cuDNN's search of algorithms, and TF32 in matmuls of float32.
        options: options of Inductor, by name, in force for the process: Dynamo itself reads that of freezing.
        ours: `plan` or `backend`; empty for a setting of torch.
    """

    mode: str = ""
    tuned: bool = False
    options: Mapping[str, Any] | None = None
    ours: str = ""

    @property
    def compiles(self) -> bool:
        """Whether anything is compiled, so that a cache on disk helps a later process."""
        return bool(self.mode or self.options or self.ours)


GRAPHS = {"triton.cudagraphs": True}
SETTINGS: Mapping[str, Setting] = {
    "eager": Setting(),
    "default": Setting("default"),
    "reduce-overhead": Setting("reduce-overhead"),
    "eager, tuned": Setting(tuned=True),
    "default, tuned": Setting("default", tuned=True),
    "reduce-overhead, tuned": Setting("reduce-overhead", tuned=True),
    "freezing, tuned": Setting(tuned=True, options={**GRAPHS, "freezing": True}),
    "autotuned matmuls, tuned": Setting(
        tuned=True, options={**GRAPHS, "max_autotune_gemm": True, "max_autotune_conv_backends": "ATEN"}
    ),
    "plan": Setting(tuned=True, ours="plan"),
    "backend": Setting(tuned=True, ours="backend"),
}
"""Settings by name; templates of convolutions are left out, for they hardly ever finish within the limit."""


@dataclass(frozen=True, slots=True)
class ExpertCase:
    """A model to measure in every setting."""

    model: str
    batch_size: int
    precision: str
    device: str
    hardware: str | None
    settings: tuple[str, ...]
    img_size: int | None = None

    @property
    def file_name(self) -> str:
        """Name of its CSV file."""
        return f"{self.model}-{self.batch_size}-{self.precision}.csv".replace(":", "-").replace("/", "-")


@contextmanager
def in_force(setting: Setting) -> Iterator[None]:
    """Context with the flags of a setting."""
    import torch
    from torch._inductor import config

    before = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    torch.backends.cudnn.benchmark = setting.tuned
    torch.set_float32_matmul_precision("high" if setting.tuned else "highest")
    try:
        with config.patch(dict(setting.options or {})):
            yield
    finally:
        torch.backends.cudnn.benchmark = before[0]
        torch.set_float32_matmul_precision(before[1])


def caller_of(module: Callable[..., Any]) -> Callable[..., Any]:
    """Function with code of its own that calls a module.

    Dynamo keeps what it compiles by the code that was compiled, and a model in several settings has the same forward:
    one setting would fill the cache of another.
    """

    def call(*inputs: Any) -> Any:
        return module(*inputs)

    return FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)


def built(case: ExpertCase, setting: Setting) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    """Call of a model in a setting, and one that returns its outputs as a list of tensors."""
    import torch

    from costmodel import apply, plan
    from costmodel.backend import NAME
    from costmodel.capture.trace import tensors_in
    from costmodel.zoo import load_real

    size = {} if case.img_size is None else {"img_size": case.img_size}
    loaded = load_real(
        case.model, torch.device(case.device), batch_size=case.batch_size, precision=case.precision, **size
    )
    module, inputs = loaded.module, tuple(loaded.inputs)
    if setting.tuned and not setting.ours:
        module = module.to(memory_format=torch.channels_last)
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    chosen = {} if case.hardware is None else {"hardware": case.hardware}
    runner: Callable[..., Any] = module
    if setting.ours == "plan":
        runner = apply(module, plan(module, inputs, model_name=case.model, keep=True, **chosen), inputs)
    elif setting.ours:
        runner = torch.compile(caller_of(module), backend=NAME, options=chosen)
    elif setting.compiles:
        runner = torch.compile(caller_of(module), mode=setting.mode or None)
    return lambda: runner(*inputs), lambda: [output.clone() for output in tensors_in(runner(*inputs))]


def prepare(case: ExpertCase, name: str) -> dict[str, Any]:
    """Compile one setting in this process; seconds to its first result, or a note about its failure."""
    import torch

    setting = SETTINGS[name]
    begin = time.perf_counter()
    try:
        with torch.no_grad(), in_force(setting):
            call, _ = built(case, setting)
            call()
        return {"compile_s": round(time.perf_counter() - begin, 2)}
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything; the other settings go on
        return {"note": own_words(error)[:200]}
    finally:
        torch._dynamo.reset()
        gc.collect()
        if case.device.startswith("cuda"):
            torch.cuda.empty_cache()


def measure(case: ExpertCase, seconds: float, turn: Callable[[], None] = lambda: None) -> dict[str, dict[str, Any]]:
    """Measure every setting of a case in this process, round after round.

    Args:
        case: the case.
        seconds: to measure a setting in a round.
        turn: called when all settings are built; returns when the machine is this process's alone.
    """
    import torch

    from costmodel.execution.numerics import worst_error
    from costmodel.measurement.timers import latency
    from costmodel.measurement.validation import bootstrap

    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    expected: list[Any] = []
    with torch.no_grad():
        for name in case.settings:
            torch.manual_seed(0)  # the same weights and inputs in every setting
            try:
                with in_force(SETTINGS[name]):
                    calls[name], outputs = built(case, SETTINGS[name])
                    expected, got = expected or outputs(), outputs()
                found[name] = {"error": f"{worst_error(got, expected):.2g}"}
            except Exception as error:  # noqa: BLE001 - a compiler may raise anything; the other settings go on
                calls.pop(name, None)
                found[name] = {"note": own_words(error)[:200]}
        turn()
        rounds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                with in_force(SETTINGS[name]):
                    rounds[name].append(latency(call, seconds, device=case.device).median_us / 1e3)
    for name, times in rounds.items():
        low, high = bootstrap(times)
        found[name] |= {"median_ms": statistics.median(times), "low_ms": low, "high_ms": high}
    return found
