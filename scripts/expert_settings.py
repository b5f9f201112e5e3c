"""Settings that an expert of torch.compile would try, beside plans: how each is built and measured."""

from __future__ import annotations

import gc
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from costmodel.errors import own_words
from costmodel.execution.cuda_graph import is_capturing

ROUNDS = 7
LONGEST_ALARM = 1e6
"""Seconds; a timer of the system takes no infinite time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Way to run a model.

    Attributes:
        mode: mode of torch.compile; empty for eager execution.
        tuned: whether with channels_last, cuDNN's search of algorithms, and TF32 in matmuls of float32.
        options: options of Inductor, by name, in force for the process: Dynamo itself reads that of freezing.
        ours: `plan` or `backend`; empty for a setting of torch.
        late: whether it is built after the others, for it is seldom the fastest.
        guarded: whether Dynamo checks at each call that no module has changed.
    """

    mode: str = ""
    tuned: bool = False
    options: Mapping[str, Any] | None = None
    ours: str = ""
    late: bool = False
    guarded: bool = True

    @property
    def compiles(self) -> bool:
        """Whether anything is compiled, rather than run eagerly."""
        return bool(self.mode or self.options or self.ours)

    @property
    def searches(self) -> bool:
        """Whether many kernels are timed for each matmul before one is chosen."""
        return "max_autotune_gemm" in (self.options or {})

    @property
    def replays_graphs(self) -> bool:
        """Whether torch replays CUDA graphs."""
        return self.mode == "reduce-overhead" or GRAPHS.items() <= (self.options or {}).items()


GRAPHS = {"triton.cudagraphs": True}
SETTINGS: Mapping[str, Setting] = {
    "eager": Setting(),
    "default": Setting("default", late=True),
    "reduce-overhead": Setting("reduce-overhead", late=True),
    "eager, tuned": Setting(tuned=True),
    "default, tuned": Setting("default", tuned=True, late=True),
    "reduce-overhead, tuned": Setting("reduce-overhead", tuned=True),
    "freezing, tuned": Setting(tuned=True, options={**GRAPHS, "freezing": True}),
    "autotuned matmuls, tuned": Setting(
        tuned=True, options={**GRAPHS, "max_autotune_gemm": True, "max_autotune_conv_backends": "ATEN"}
    ),
    "plan": Setting(tuned=True, ours="plan"),
    "backend": Setting(tuned=True, ours="backend"),
    "backend, unguarded": Setting(tuned=True, ours="backend", guarded=False),
}
"""Settings by name; templates of convolutions are left out, for they hardly ever finish within the limit."""
OURS = tuple(name for name, setting in SETTINGS.items() if setting.ours)
GUARDED = tuple(name for name, setting in SETTINGS.items() if setting.guarded)
"""Settings that notice every change of a model."""


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
    chosen: dict[str, Any] = {} if case.hardware is None else {"hardware": case.hardware}
    runner: Callable[..., Any] = module
    if setting.ours == "plan":
        on_gpu = case.device.startswith("cuda")
        allowed: dict[str, Any] = {"matmul_precision": "high", "cudnn_benchmark": True} if on_gpu else {}
        made = plan(module, inputs, model_name=case.model, keep=True, **chosen, **allowed)
        runner = apply(module, made, inputs)
    elif setting.ours:
        if not setting.guarded:
            chosen["guard_filter_fn"] = torch.compiler.skip_guard_on_all_nn_modules_unsafe
        runner = torch.compile(caller_of(module), backend=NAME, options=chosen)
    elif setting.compiles:
        runner = torch.compile(caller_of(module), mode=setting.mode or None)
    return lambda: runner(*inputs), lambda: [output.clone() for output in tensors_in(runner(*inputs))]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Context that raises `TimeoutError` in the main thread after a time; again each second, if that is caught within.

    It does not in the midst of a capture of a CUDA graph, which could not be left in order. What goes on without the
    part that was interrupted, as a plan does eagerly, ends in the same error.

    Raises:
        TimeoutError: the time is up.
    """
    is_over = False

    def late(*_: object) -> None:
        nonlocal is_over
        if not is_capturing():
            is_over = True
            raise TimeoutError("not built within the limit")

    if seconds <= 0:
        late()
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    if is_over:
        late()


def in_order(names: Sequence[str]) -> list[str]:
    """Names of settings, as they are built: what a time limit should reach last comes last.

    First eager execution, whose outputs are the reference.
    """
    return sorted(names, key=lambda name: (SETTINGS[name].compiles, SETTINGS[name].late))


def measure(
    case: ExpertCase, seconds: float, limit: float = math.inf, turn: Callable[[], None] = lambda: None
) -> dict[str, dict[str, Any]]:
    """Build every setting of a case in this process, then measure all of them, round after round.

    Args:
        case: the case.
        seconds: to measure a setting in a round.
        limit: seconds to build all settings; those that are not built by then have a note.
        turn: called when all settings are built; returns when the machine is this process's alone.
    """
    import torch

    from costmodel.execution.numerics import worst_error
    from costmodel.measurement.timers import latency
    from costmodel.measurement.validation import bootstrap

    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    expected: list[Any] = []
    end = time.monotonic() + limit
    with torch.no_grad():
        for name in in_order(case.settings):
            torch.manual_seed(0)  # the same weights and inputs in every setting
            begin = time.monotonic()
            try:
                with in_force(SETTINGS[name]), within(min(end - begin, LONGEST_ALARM)):
                    calls[name], outputs = built(case, SETTINGS[name])
                    expected, got = expected or outputs(), outputs()
                found[name] = {"error": f"{worst_error(got, expected):.2g}"}
                if SETTINGS[name].compiles:
                    found[name]["compile_s"] = round(time.monotonic() - begin, 2)
            except Exception as error:  # noqa: BLE001 - a compiler may raise anything; the other settings go on
                calls.pop(name, None)
                found[name] = {"note": own_words(error)[:200]}
            gc.collect()
            if case.device.startswith("cuda"):
                torch.cuda.empty_cache()  # other cases are built on this GPU
        turn()
        rounds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name in list(rounds):
                try:
                    with in_force(SETTINGS[name]):
                        rounds[name].append(latency(calls[name], seconds, device=case.device).median_us / 1e3)
                except Exception as error:  # noqa: BLE001 - as above; some models fail in their second call
                    found[name] = {"note": own_words(error)[:200]}
                    del rounds[name]
    for name, times in rounds.items():
        low, high = bootstrap(times)
        found[name] |= {"median_ms": statistics.median(times), "low_ms": low, "high_ms": high}
        found[name]["rounds_ms"] = " ".join(f"{ms:.6g}" for ms in times)
    return {name: found[name] for name in case.settings}
