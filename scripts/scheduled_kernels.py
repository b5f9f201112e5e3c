"""How many kernels TorchInductor's own scheduler makes of models for an H200, beside this project's; without a GPU.

python scripts/scheduled_kernels.py convnext_tiny timm:gmlp_s16_224 -b 1
python scripts/scheduled_kernels.py --rows docs/scheduled_kernels.csv --recount --write docs/accuracy.md

The model is traced on the CPU. Before Inductor lowers the graph, its fake tensors are said to lie on a GPU, of which
Inductor is told what it asks; what its scheduler has joined is counted, and no code is made. Group norms and attention,
which PyTorch takes apart otherwise on a CPU, are put as on a GPU. The rules are those of the torch that is installed.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from torch._inductor import compile_fx, config, graph, ir, scheduler
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import post_grad_passes
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from tqdm import tqdm

from collectors.whole_model import build
from costmodel.capture import capture
from costmodel.compile import compiled_kernels
from costmodel.errors import CostmodelError
from costmodel.hardware import load_profile
from costmodel.measured import read_measured
from costmodel.reductions import MULTIPROCESSORS
from costmodel.scores import replace_section
from costmodel.zoo import load

GPU = torch.device("cuda:0")
BEGIN, END = "<!-- scheduled: begin -->", "<!-- scheduled: end -->"
H200 = {
    "multi_processor_count": MULTIPROCESSORS,
    "major": 9,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048,
    "warp_size": 32,
}
ATTRIBUTES = {"minor": 0, "name": "NVIDIA H200", "total_memory": 150 << 30, "gcnArchName": ""}
SETTINGS = {"fx_graph_cache": False, "force_disable_caches": True, "compile_threads": 1}


class Scheduled(Exception):  # noqa: N818 - it is no error: everything of interest has been done
    """Ends a compilation after scheduling."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        super().__init__(f"{len(nodes)} nodes")
        self.nodes = nodes


def scheduled(model: str, batch_size: int) -> tuple[int, int]:
    """How many kernels Inductor would generate for one pass, and how many other calls it would make.

    Args:
        model: as `costmodel predict` takes it, of torchvision or timm.
        batch_size: images at once, in float32.
    """
    case = {"model": model, "batch_size": batch_size, "precision": "float32", "layout": "nchw"}
    module, images = build(case, "cpu")
    torch._dynamo.reset()
    with _told_of_a_gpu(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.compile(module, backend=_compile, fullgraph=True)(images)
        except Exception as error:
            nodes = _nodes(error)
            if nodes is None:
                raise
    external = (scheduler.ExternKernelSchedulerNode, scheduler.NopKernelSchedulerNode)
    made = sum(not isinstance(node, external) for node in nodes)
    calls = (node for node in nodes if isinstance(node, scheduler.ExternKernelSchedulerNode))
    return made, sum(not isinstance(node.node, ir.MultiOutput) for node in calls)


def _nodes(error: BaseException | None) -> Sequence[Any] | None:
    """What was scheduled when compiling ended, however that has been wrapped since."""
    while error is not None and not isinstance(error, Scheduled):
        error = error.__cause__ or error.__context__
    return error.nodes if error is not None else None


def _compile(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    for node in module.graph.nodes:
        if node.target is torch.nn.functional.scaled_dot_product_attention:
            node.target = _attention
    module.recompile()
    as_on_gpu = {**select_decomp_table(), torch.ops.aten.native_group_norm.default: _group_norm}
    compiled: Callable[..., Any] = compile_fx.compile_fx(
        module, list(inputs), inner_compile=_schedule, decompositions=as_on_gpu
    )
    return compiled


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Attention as the memory-efficient kernel, which takes a bias whose rows begin at multiples of eight elements."""
    if query.dim() != 4:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)
    if attn_mask is not None:
        keys = attn_mask.shape[-1]
        if keys % 8:
            attn_mask = torch.nn.functional.pad(attn_mask, (0, 8 - keys % 8))[..., :keys]
        attn_mask = attn_mask.expand(*query.shape[:-1], keys)
    causal, scale = options.get("is_causal", False), options.get("scale")
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    result: torch.Tensor = attend(query, key, value, attn_mask, False, 0.0, causal, scale=scale)[0]
    return result


def _group_norm(
    images: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch._refs.native_group_norm` of what is on a GPU."""
    grouped = images.reshape(batch, groups, channels // groups, pixels)
    variance, mean = torch.var_mean(grouped, dim=(2, 3), unbiased=False, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    result = ((grouped - mean) * scale).view(images.shape)
    for factor, apply in ((weight, torch.mul), (bias, torch.add)):
        if factor is not None:
            result = apply(result, factor.reshape(1, channels, *(1 for _ in images.shape[2:])))
    return result, mean.flatten(1), scale.flatten(1)


def _schedule(module: torch.fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Lowers a graph of ATen operators as for a GPU, up to its schedule."""
    mode = torch._dynamo.utils.detect_fake_mode(inputs)
    compile_fx.view_to_reshape(module)
    _move(module, inputs)
    with V.set_fake_mode(mode):
        post_grad_passes(module, is_inference=True)
        _move(module, inputs)
        compile_fx.record_original_output_strides(module)
        lowering = graph.GraphLowering(
            module, example_inputs=inputs, shape_env=mode.shape_env, is_inference=True, graph_id=0
        )
        with V.set_graph_handler(lowering), DebugContext():
            lowering.run(*inputs)
            lowering.codegen()
    raise AssertionError("Inductor has made code without a schedule")


def _move(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Says of every fake tensor of a graph that it lies on the GPU."""
    for node in module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": GPU}
    for tensor in _tensors([node.meta.get("val") for node in module.graph.nodes] + list(inputs)):
        tensor.fake_device = GPU


def _tensors(value: object) -> Iterator[FakeTensor]:
    if isinstance(value, FakeTensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _on_cpu(node: Any, *_: Any, **__: Any) -> torch.Tensor | None:
    """A tensor like what a node makes; operators that Inductor asks for their strides are linked for a CPU only."""
    if node is None:
        return None
    size = tuple(int(length) for length in node.get_size())
    strides = node.maybe_get_stride() or ir.FlexibleLayout.contiguous_strides(size)
    return torch.empty_strided(size, tuple(int(step) for step in strides), dtype=node.get_dtype(), device="cpu")


def _stop(found: Any, *_: Any) -> None:
    raise Scheduled(list(found.nodes))


@contextmanager
def _told_of_a_gpu() -> Iterator[None]:
    properties = DeviceProperties(type="cuda", index=0, cc=90, **H200)
    told = (
        patch.object(DeviceProperties, "create", classmethod(lambda *_: properties)),
        patch.object(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(**H200, **ATTRIBUTES)),
        patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        patch.object(scheduler, "has_triton", lambda *_: True),
        patch.object(scheduler.Scheduler, "codegen", _stop),
        patch.object(ir, "ir_node_to_tensor", _on_cpu),
        config.patch(SETTINGS),
    )
    with ExitStack() as stack:
        for one in told:
            stack.enter_context(one)
        yield


def counted(model: str, batch_size: int) -> tuple[int, int]:
    """The same numbers by this project's rules."""
    loaded = load(model, batch_size=batch_size)
    kernels = compiled_kernels(capture(loaded.module, loaded.inputs, model))
    made = [kernel for kernel in kernels if kernel.backend == "triton"]
    return sum(kernel.launches for kernel in made), len(kernels) - len(made)


def summary(frame: pd.DataFrame, known: Collection[str]) -> str:
    """How often the numbers agree, as a table in Markdown.

    Args:
        frame: a row a model, as `main` writes it.
        known: the models that the profile was trained on.
    """
    wrong = (frame["predicted"] / frame["scheduled"] - 1).abs()
    lines = [
        "| models | number | as many kernels | within 5 % | within 10 % | mean difference |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, chosen in (("measured ones", frame["model"].isin(known)), ("others", ~frame["model"].isin(known))):
        part = wrong[chosen]
        shares = " | ".join(f"{100 * (part <= most).mean():.0f} %" for most in (0.0, 0.05, 0.1))
        lines.append(f"| {name} | {len(part)} | {shares} | {100 * part.mean():.1f} % |")
    return "\n".join(lines)


def main() -> None:
    """Prints a line a model, and puts what is in the file of rows, if one is given, into docs/accuracy.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("-b", "--batch-size", type=int, default=1)
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="adds the models that it has not; kernels only")
    parser.add_argument("--recount", action="store_true", help="counts anew what is predicted for its models")
    parser.add_argument("--hardware", default="nvidia-h200", help="whose measured models are told apart")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = pd.read_csv(args.rows).to_dict("records") if args.rows and args.rows.exists() else []
    if args.recount:
        for row in tqdm(rows, disable=None):
            row["predicted"], _ = counted(row["model"], row["batch_size"])
        pd.DataFrame(rows).to_csv(args.rows, index=False)
    known = {row["model"] for row in rows}
    for model in args.models:
        if model in known:
            continue
        try:
            (made, others), (ours, ours_others) = scheduled(model, args.batch_size), counted(model, args.batch_size)
        except CostmodelError as error:
            parser.error(str(error))
        except RuntimeError as error:
            print(f"{model}: Inductor cannot schedule it here: {error}".splitlines()[0], file=sys.stderr, flush=True)
            continue
        print(f"{model}@{args.batch_size}: {made} {others} scheduled; {ours} {ours_others} predicted", flush=True)
        rows.append({"model": model, "batch_size": args.batch_size, "scheduled": made, "predicted": ours})
        rows[-1]["torch"] = torch.__version__.partition("+")[0]
        if args.rows:
            pd.DataFrame(rows).to_csv(args.rows, index=False)
    if args.write:
        measured, _ = read_measured(load_profile(args.hardware).path / "models.jsonl")
        text = summary(pd.DataFrame(rows), {case.model for case in measured})
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
