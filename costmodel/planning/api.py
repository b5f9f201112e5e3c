"""Module -> plan, with nothing run."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import torch
from torch import nn

from costmodel import checks
from costmodel.capture.executable import capture_exactly
from costmodel.capture.inputs import Inputs, inputs_fault, module_fault
from costmodel.capture.with_partition import RealCall, capture_with_partition
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.memory.capacity import shortage
from costmodel.planning.kept_plans import KeptPlan, is_keeping, keep_plan, key_of, load_kept
from costmodel.planning.oracle import STRATEGIES
from costmodel.planning.plan import Plan, fingerprint
from costmodel.planning.planner import Objective, bound_ms, make_plan
from costmodel.prediction.arithmetic import AMP, HIGHEST, MATMUL_PRECISIONS, Arithmetic
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import profile_of


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_fault,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    strategy=checks.one_of(STRATEGIES),
    calls=checks.positive,
    memory_limit=checks.positive,
    fork=checks.flag,
    branch_rewrites=checks.flag,
    check=checks.flag,
    real=checks.optional(checks.must_be("a function", callable)),
    is_whole=checks.flag,
    amp=checks.optional(checks.one_of(AMP)),
    matmul_precision=checks.one_of(MATMUL_PRECISIONS),
    cudnn_benchmark=checks.flag,
    keep=checks.flag,
)
def plan(
    module: nn.Module,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    model_name: str | None = None,
    strategy: str = "exact",
    calls: float = math.inf,
    memory_limit: float = math.inf,
    fork: bool = True,
    branch_rewrites: bool = True,
    check: bool = True,
    real: RealCall | None = None,
    is_whole: bool = False,
    amp: str | None = None,
    matmul_precision: str = HIGHEST,
    cudnn_benchmark: bool = False,
    keep: bool = False,
) -> Plan:
    """Plan how a module should run on some hardware: a backend for each region. Nothing runs.

    Args:
        module: in evaluation mode; real or meta parameters; it is not changed.
        inputs: positional inputs, or a mapping of keyword inputs; real, meta or fake tensors.
        hardware: a profile's name; None for this machine's GPU if there is a profile for it, else the default.
        model_name: what the plan calls the model; None for its class.
        strategy: a key of `costmodel.planning.oracle.STRATEGIES`.
        calls: number of calls within which compiling should break even; infinite for the least latency.
        memory_limit: most bytes that a call may need as predicted, with weights, their copies and inputs.
        fork: whether branches may run side by side, each on its own CUDA stream.
        branch_rewrites: whether the rewrites of `costmodel.planning.rewrite_search.PLACED` may be used.
        check: whether Dynamo traces the module to find graph breaks, which the latencies of the modes depend on.
        real: factory of the module and its inputs with real tensors, for a pass that reads their values.
        is_whole: whether torch.compile is known to make one graph of the module.
        amp: `float16` or `bfloat16` for a plan of calls under `torch.autocast("cuda", ...)`, which casts weights once,
            before the first call; None for none.
        matmul_precision: precision of float32 matmuls, as of `torch.set_float32_matmul_precision`.
        cudnn_benchmark: whether the modes beside the plan are predicted with `torch.backends.cudnn.benchmark` on; the
            plan itself searches cuDNN's algorithms in any case.
        keep: whether to keep the plan beside Inductor's cache, and to take the plan kept there by an earlier process.

    Raises:
        UnknownHardwareError: there is no such profile.
        RequestError: there is no such strategy, no number of calls, or no plan within the memory limit; or a setting is
            one of GPUs, and the profile a CPU's.
        CaptureError: the module cannot be turned into a graph.
        PlanError: the forward pass changes state that outlives it, so it cannot be replayed.
        ProfileError: the profile is damaged or of another version.
    """
    arithmetic = Arithmetic(amp, matmul_precision, cudnn_benchmark)
    profile = profile_of(hardware)
    arithmetic.check_device(profile)
    profile = arithmetic.on(profile)
    name = model_name or type(module).__name__
    exact = capture_exactly(module, inputs, name, amp)
    request = {
        "name": name,
        "strategy": strategy,
        "calls": calls,
        "memory_limit": memory_limit,
        "fork": fork,
        "branch_rewrites": branch_rewrites,
        "check": check,
        "is_whole": is_whole,
        **asdict(arithmetic),
    }
    key = key_of(fingerprint(exact.graph), profile, "any", request) if keep and is_keeping() else ""
    if key and (kept := load_kept(key)):
        return kept.plan
    graph = capture_with_partition(module, inputs, name, check=check, real=real, is_whole=is_whole, amp=amp)
    report = predict_graph(graph, profile)
    modes = {mode: found.latency_ms for mode, found in report.modes.items()}
    wanted = Objective(calls, fork, branch_rewrites, memory_limit)
    made = make_plan(exact.graph, profile, modes, torch.__version__, strategy, wanted)
    too_large = shortage(made.memory_bytes, profile.device.memory_bytes)
    made = replace(made, warnings=(too_large,) if too_large else (), graphs=report.graphs.count)
    made = replace(made, **asdict(arithmetic))
    if key:
        keep_plan(key, KeptPlan(made))
    return made


def theoretical_ms(module: nn.Module, inputs: Inputs, *, hardware: str | None = None) -> float:
    """Compute the study's theoretical oracle: each block runs its fastest way and switching is free; milliseconds.

    The result is a lower bound, not a plan. Raises the errors of `plan`.
    """
    graph = capture_exactly(module, inputs, type(module).__name__).graph
    return bound_ms(graph, profile_of(hardware))
