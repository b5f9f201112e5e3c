"""One whole model: built with real weights on a device, and timed eager and in torch.compile's modes, in turn."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from collectors.processes.host_noise import HostWatch, watch_host
from collectors.workloads.model_cases import WholeModelCase
from costmodel.errors import MeasurementError, RequestError

if TYPE_CHECKING:
    import torch

Found = TypeVar("Found")
Call = Callable[[], Any]

MODES: Mapping[str, str | None] = {"default": None, "reduce-overhead": "reduce-overhead"}
INTERLEAVED, CPU_INTERLEAVED = 2, 3
CPU_SECONDS, CPU_LEAST = 0.3, 5
"""How long a round on a CPU is, and of how many calls at least."""


def modes_on(device: str, wanted: Collection[str] = tuple(MODES)) -> Mapping[str, str | None]:
    """The modes among those wanted that differ on a device: CUDA graphs are for CUDA."""
    chosen = {mode: option for mode, option in MODES.items() if mode in wanted}
    return chosen if device.startswith("cuda") else {"default": None}


def synchronize(device: str) -> None:
    """Waits until the device has nothing to do."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def build(case: WholeModelCase, device: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The module (evaluation mode, random weights) and its input, on the device.

    costmodel.zoo checks the request and says what the input is; the module is built anew, because the zoo's lies on
    the meta device, where tables that a constructor computes (swin's position indices) are lost.

    Raises:
        RequestError: the model is unknown, is of neither torchvision nor timm, or takes several inputs.
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
    return module, x.contiguous(memory_format=memory_format)


def _real_module(spec: str) -> torch.nn.Module:
    from costmodel.zoo import load_torchvision

    source, colon, name = spec.partition(":")
    models = load_torchvision().models  # timm imports torchvision, and may find it broken
    module: torch.nn.Module
    if source == "timm" and name:
        import timm

        module = timm.create_model(name, pretrained=False)
    elif colon or spec.endswith(".pt2"):
        raise RequestError(f"{spec}: only models of torchvision and timm can be measured")
    else:
        builder = models.get_model_builder(spec)
        options = {key: None for key in ("weights", "weights_backbone") if key in inspect.signature(builder).parameters}
        unset = {"init_weights": False} if spec in ("googlenet", "inception_v3") else {}
        module = builder(**options, **unset)
    return module


def measure_modes(
    case: WholeModelCase,
    device: str,
    with_device: bool = True,
    modes: Collection[str] = tuple(MODES),
    watch: HostWatch | None = None,
) -> dict[str, Any]:
    """One case measured, eager and compiled in turn; latencies in microseconds, quantiles of raw samples.

    `unstable` in the record names modes in which the model was compiled again while it was timed, `graph_breaks` how
    often each was cut: such a mode's speedup is not that of one compiled graph. `disturbed` names what was timed while
    the host was busy with something else, in spite of several tries.

    Args:
        case: what is measured.
        device: where.
        with_device: whether device times are taken too.
        modes: of torch.compile.
        watch: of the host, which knows what is usual there; a new one by default.
    """
    import torch

    module, x = build(case, device)
    record: dict[str, Any] = dict(case, input_shape=list(x.shape), latency_us={}, disturbed=[])
    timer = _Timer(device, watch or watch_host(device), record)
    with torch.no_grad():
        reference = first_tensor(module(x))
        eager: Call = partial(module, x)
        for mode, option in modes_on(device, modes).items():
            compiled = compile_mode(module, x, mode, option, device, reference, record)
            timer.time_mode(mode, eager, compiled, with_device and mode == "default")
    if device.startswith("cuda"):
        record["probe_us"] = round(timer.watch.usual_us, 4)
    return record


def compile_mode(
    module: torch.nn.Module,
    x: torch.Tensor,
    mode: str,
    option: str | None,
    device: str,
    reference: torch.Tensor,
    record: dict[str, Any],
) -> Call:
    """The compiled call after its warm-up; what compiling took and how far off the result is go into `record`."""
    import torch
    from torch._dynamo.utils import counters

    from costmodel.execution.inductor_compile import share_cache

    share_cache()
    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    compiled = partial(torch.compile(module, mode=option), x)
    output = first_tensor(compiled()).clone()
    for _ in range(2):
        compiled()
    synchronize(device)
    record[f"{mode}_warm_compile_s"] = round(time.perf_counter() - start, 3)
    error = (output - reference).float().norm() / reference.float().norm()
    record[f"{mode}_error"] = error.item()
    if breaks := sum(counters["graph_break"].values()):
        record.setdefault("graph_breaks", {})[mode] = breaks
    return compiled


@dataclass(frozen=True, slots=True)
class _Timer:
    """Times calls of one case on a watched host, into its record."""

    device: str
    watch: HostWatch
    record: dict[str, Any]

    def time_mode(self, mode: str, eager: Call, compiled: Call, with_device: bool) -> None:
        """A mode's call and the eager one in turn; then, on a GPU, what each takes of the host and of the device."""
        from torch._dynamo.utils import counters

        from costmodel.measurement.timers import device_time, host_time

        graphs = counters["stats"]["unique_graphs"]
        on_gpu = self.device.startswith("cuda")
        for _ in range(INTERLEAVED if on_gpu else CPU_INTERLEAVED):
            taken = self._undisturbed(mode, partial(self._round, eager, compiled))
            for name, quantiles in zip((f"eager/{mode}", mode), taken, strict=True):
                self.record["latency_us"].setdefault(name, []).append(quantiles)
        for name, call in (("eager", eager), (mode, compiled)) if on_gpu else ():
            host = self._undisturbed(f"{name} host", partial(host_time, call, device=self.device))
            self.record[f"{name}_host_us"] = host.quantiles_us()
            if with_device:
                self.record[f"{name}_device_us"] = device_time(call, device=self.device).quantiles_us()
        if counters["stats"]["unique_graphs"] != graphs:
            self.record.setdefault("unstable", []).append(mode)

    def _round(self, *calls: Call) -> list[list[float]]:
        """Latency of each call, in turn, as quantiles in microseconds."""
        from costmodel.measurement.timers import latency

        seconds, least = (0.12, 10) if self.device.startswith("cuda") else (CPU_SECONDS, CPU_LEAST)
        return [latency(call, seconds, least, self.device).quantiles_us() for call in calls]

    def _undisturbed(self, name: str, take: Callable[[], Found]) -> Found:
        """What was taken while the host was quiet; if it never was, the record says so."""
        found, quiet = self.watch.measure(take)
        if not quiet and name not in self.record["disturbed"]:
            self.record["disturbed"].append(name)
        return found


def first_tensor(output: Any) -> torch.Tensor:
    """A model's result, or the first of several.

    Raises:
        MeasurementError: it is no tensor.
    """
    import torch

    tensor = output[0] if isinstance(output, tuple) else output
    if not isinstance(tensor, torch.Tensor):
        raise MeasurementError(f"the model returns {type(output).__name__}, not a tensor: results cannot be compared")
    return tensor
