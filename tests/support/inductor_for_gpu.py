"""TorchInductor itself, compiling for a GPU that is not there: which kernels its scheduler makes.

Dynamo traces a module with fake tensors on `cuda`, and Inductor lowers, decides layouts and fuses as for an
NVIDIA H200. The scheduler's nodes are read before any code is generated. Attention is left out: without CUDA, torch has
no fused kernels for it. Parts of torch that ask the driver are replaced.

Run as a program, it prints the counts of all cases, or their errors, as JSON. Tests use it so: Inductor caches much of
what it finds for a whole process.
"""

from __future__ import annotations

import copy
import json
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._inductor import compile_fx, scheduler
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.runtime.hints import DeviceProperties
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.support.inductor_cases import CASES

H200 = DeviceProperties(
    type="cuda",
    index=0,
    multi_processor_count=132,
    cc=90,
    major=9,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
)

DRIVER = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=141 << 30,
    multi_processor_count=132,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    L2_cache_size=60 << 20,
    gcnArchName="",
)
"""Facts of the same device as the driver gives them."""


class _Scheduled(BaseException):
    """End of a compilation, right before code is generated."""


def kernels_made(module: nn.Module, *shapes: Sequence[int]) -> tuple[int, int]:
    """Generated kernels and library calls that Inductor makes of a module on a GPU, for inputs of these shapes.

    The first pass of a split reduction counts as a kernel of its own.
    """
    nodes: list[Any] = []

    def stop(self: Any, *_: Any) -> None:
        nodes.extend(self.nodes)
        raise _Scheduled

    def backend(graph: Any, inputs: Any) -> Any:
        with _pretended(stop):
            try:
                compile_fx.compile_fx(graph, inputs)
            except _Scheduled:
                return graph
        raise AssertionError("Inductor made no kernels")

    # Called as Inductor calls them: they are cached by argument, and fail where they register a pattern again.
    joint_graph.lazy_init(torch.device("cpu"))
    post_grad.lazy_init()
    torch._dynamo.reset()
    options = {"force_disable_caches": True, "compile_threads": 1}
    copied = copy.deepcopy(module).eval()
    fake = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with warnings.catch_warnings(), torch.no_grad(), torch._inductor.config.patch(options), fake:
        warnings.simplefilter("ignore")  # Inductor's, of what a GPU could do
        inputs = [torch.empty(tuple(shape), device="cuda") for shape in shapes]
        torch.compile(_moved(copied), backend=backend)(*inputs)
    torch._dynamo.reset()
    calls = sum(isinstance(node, scheduler.ExternKernelSchedulerNode) for node in nodes)
    nothing = sum(isinstance(node, scheduler.NopKernelSchedulerNode) for node in nodes)
    return len(nodes) - calls - nothing, calls


def _moved(module: nn.Module) -> nn.Module:
    """The module with fake tensors on a GPU in place of its own."""
    for child in module.modules():
        for held in (child._parameters, child._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
                    held[name] = nn.Parameter(twin, requires_grad=False) if held is child._parameters else twin
    return module


@contextmanager
def _pretended(stop: Any) -> Iterator[None]:
    """Context in which Inductor finds an H200 and cuDNN, and ends at `stop`."""
    nothing = {
        "torch.cuda._lazy_init": None,
        "torch.cuda.random._lazy_init": None,
        "torch.cuda.synchronize": None,
        "torch.cuda.set_rng_state": None,
        "torch.cuda.get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "torch.cuda.is_available": True,
        "torch.cuda.device_count": 1,
        "torch.cuda.current_device": 0,
        "torch.cuda._exchange_device": 0,
        "torch.cuda._maybe_exchange_device": 0,
        "torch.cuda.get_device_capability": (9, 0),
        "torch.cuda.get_device_properties": DRIVER,
        "torch._dynamo.device_interface.CudaInterface.get_device_properties": DRIVER,
        "torch._dynamo.device_interface.CudaInterface.Worker.get_device_properties": DRIVER,
        "torch._inductor.scheduler.has_triton": True,
        "torch._inductor.fx_passes.joint_graph.lazy_init": None,
        "torch._inductor.fx_passes.post_grad.lazy_init": None,
    }
    with ExitStack() as patches:
        for name, answer in nothing.items():
            patches.enter_context(patch(name, _answering(answer)))
        patches.enter_context(patch("torch.version.cuda", "13.0"))
        patches.enter_context(patch.object(DeviceProperties, "create", _answering(H200)))
        patches.enter_context(patch.object(scheduler.Scheduler, "codegen", stop))
        patches.enter_context(patch.object(torch._C, "_conv_determine_backend_memory_format", _layout_of_cudnn))
        patches.enter_context(patch.object(joint_graph.UniformValueConstantFolder, "_deduce_value", _deduced_on_cpu))
        yield


def _answering(answer: Any) -> Any:
    return lambda *_, **__: answer


def _layout_of_cudnn(source: FakeTensor, weight: FakeTensor, _backend: Any) -> torch.memory_format:
    """Layout of a convolution's result: channels_last where an operand has it (`cudnn_conv_suggest_memory_format`)."""
    found = (suggest_memory_format(tensor) for tensor in (source, weight))
    return next((layout for layout in found if layout is not torch.contiguous_format), torch.contiguous_format)


_DEDUCE = joint_graph.UniformValueConstantFolder._deduce_value


def _deduced_on_cpu(self: Any, node: Any) -> Any:
    """Fold a constant on the CPU instead of the GPU."""
    given = node.kwargs
    if "device" in given:
        node.kwargs = {**given, "device": torch.device("cpu")}
    try:
        return _DEDUCE(self, node)
    finally:
        node.kwargs = given


def _made_of_all() -> dict[str, tuple[int, int] | str]:
    """Kernels and calls of each case, or its error: one that fails leaves the others."""
    made: dict[str, tuple[int, int] | str] = {}
    for name, (module, shape) in CASES.items():
        try:
            made[name] = kernels_made(module, shape)
        except Exception:  # noqa: BLE001 - the test of this case shows it
            made[name] = traceback.format_exc()
    return made


if __name__ == "__main__":
    print(json.dumps(_made_of_all()))
