"""What Inductor's Triton templates would save: products and convolutions of models, with and without them.

python scripts/benchmark_templates.py resnet50 vit_b_16 -o docs/templates_h200.json          measures, on a GPU
python scripts/benchmark_templates.py --rows docs/templates_h200.json --write docs/plans.md      what was measured

Each kernel is one that a plan could leave to Inductor (batch norm folded, channels last), with what follows it
elementwise; by lot, until the time is up. The column before the last is what choosing the faster for each kernel, with
nothing but hindsight, would leave of Inductor's time. A plan has cuDNN's fused convolutions too, and cuBLAS's products
for convolutions of one pixel: the last column is what templates would leave of the fastest of all, libraries' times as
the profile tells them: the most that a plan could gain.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectors.cases import Case
from collectors.environment import environment
from collectors.ledger import Ledger
from collectors.pool import default_processes
from collectors.sweep import Settings, sweep
from collectors.templates import templated_kernels
from collectors.throughput import MEDIAN
from costmodel.compile import compiled_kernels
from costmodel.exact import capture_exactly
from costmodel.freeze import freeze
from costmodel.hardware import load_profile
from costmodel.ir import Graph, Op, Ref, parse
from costmodel.kernels import Kernel
from costmodel.moves import rewrite
from costmodel.pixels import find_pixels, pixels_as_products
from costmodel.predictor import Predictor
from costmodel.prices import kernels_of
from costmodel.scores import replace_section
from costmodel.zoo import load

BEGIN, END = "<!-- templates: begin -->", "<!-- templates: end -->"
PLAIN, TUNED = "inductor", "autotune"
SETTINGS = tuple((batch, precision) for batch in (1, 32) for precision in ("float32", "float16"))
MOVES = ("fold_batch_norm", "channels_last")


def templated(model: str) -> Iterator[tuple[str, str]]:
    """Graph and source of every kernel of a model that Inductor has a template for."""
    for batch_size, precision in SETTINGS:
        loaded = load(model, batch_size=batch_size, precision=precision)
        graph = capture_exactly(loaded.module, loaded.inputs, model).graph
        main = freeze(rewrite(graph, MOVES)).main
        for kernel in templated_kernels(main):
            if kernel.backend == "template":
                yield str(kernel.graph), f"{model}@{batch_size} {precision}"


def measure(models: Iterable[str], device: str, seconds: float, processes: int) -> list[dict[str, Any]]:
    """Device times of distinct kernels both ways, microseconds, as far as there is time."""
    sources = {graph: source for model in models for graph, source in templated(model)}
    graphs = sorted(sources)
    random.Random(1).shuffle(graphs)  # noqa: S311 - repeatable is what it should be
    cases = [Case(graph, runner, source=sources[graph]) for graph in graphs for runner in (TUNED, PLAIN)]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ledger.sqlite"
        sweep(cases, path, Settings(device, seconds, compile_share=0.6, processes=processes), lambda _: None)
        with Ledger(path) as ledger:
            return paired(ledger.rows())


def paired(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a kernel that was measured both ways."""
    found: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        if row["status"] == "ok":
            found[row["graph"]][row["runner"]] = row
    return [
        {
            "source": ways[PLAIN]["source"],
            "inductor_us": ways[PLAIN]["device_us"][MEDIAN],
            "templates_us": ways[TUNED]["device_us"][MEDIAN],
            "graph": graph,
        }
        for graph, ways in found.items()
        if ways.keys() == {PLAIN, TUNED}
    ]


def fused(graph: Graph) -> Kernel | None:
    """The graph as one call of cuDNN, if that can run it."""
    whole = with_bias(graph)
    try:
        return kernels_of(whole, [op.name for op in whole.ops], "cudnn")[0]
    except ValueError:
        return None


def as_product(graph: Graph) -> Sequence[Kernel]:
    """The graph's convolution as a product, and what Inductor does with the result; nothing if it is of many pixels."""
    whole = with_bias(graph)
    return compiled_kernels(pixels_as_products(whole)) if find_pixels(whole) else ()


def with_bias(graph: Graph) -> Graph:
    """The graph with the bias that Inductor adds after a convolution given to the convolution again."""
    made, users = {op.name: op for op in graph.ops}, graph.users()
    params = {value.name for value in graph.values if value.role == "param"}
    for op in graph.ops:
        reader = users[op.name][0] if len(users[op.name]) == 1 else None
        if op.base != "convolution" or op.arg("bias") is not None or reader is None or not _is_sum(reader):
            continue
        shaped = made.get(next((ref.name for ref in reader.refs() if ref.name != op.name), ""))
        bias = shaped.refs()[0] if shaped is not None and shaped.base == "reshape" else None
        if shaped is not None and bias is not None and bias.name in params and len(users[shaped.name]) == 1:
            args = tuple((key, bias if key == "bias" else value) for key, value in op.args)
            kept = [one for one in graph.ops if one.name not in (shaped.name, reader.name)]
            ops = (replace(one, args=args) if one is op else one for one in kept)
            return replace(graph, ops=tuple(one.reading(_moved(reader.name, op.name)) for one in ops))
    return graph


def _is_sum(op: Op) -> bool:
    return op.op == "add.Tensor" and op.arg("alpha", 1) == 1


def _moved(old: str, new: str) -> Callable[[Ref], Ref]:
    return lambda ref: Ref(new) if ref == Ref(old) else ref


def without_templates(row: Mapping[str, Any], predictor: Predictor) -> float:
    """The fastest way that a plan has for a kernel, microseconds: Inductor's, cuDNN's fused one, or as a product."""
    graph = parse(row["graph"])
    kernel = fused(graph)
    others = [[kernel] if kernel else [], as_product(graph)]
    times = [sum(one.us for one in predictor.predict(way, [0.5] * len(way))) for way in others if way]
    return min(float(row["inductor_us"]), *times) if times else float(row["inductor_us"])


def table(rows: Sequence[Mapping[str, Any]], predictor: Predictor) -> str:
    """Sums by kind and precision, in Markdown."""
    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        graph = parse(row["graph"])
        kind = "convolutions" if any(op.base == "convolution" for op in graph.ops) else "products"
        kinds[kind, graph.values[0].type.dtype].append(row)
    heads = (
        "kernels",
        "",
        "number",
        "faster with templates",
        "all with templates",
        "each the faster way",
        "beside libraries",
    )
    lines = [f"| {' | '.join(heads)} |", "|---|---|--:|--:|--:|--:|--:|"]
    for (kind, dtype), some in sorted(kinds.items()):
        plain, tuned = ([float(row[name]) for row in some] for name in ("inductor_us", "templates_us"))
        faster = sum(b < a for a, b in zip(plain, tuned, strict=True))
        best = sum(map(min, plain, tuned))
        ways = [without_templates(row, predictor) for row in some]
        beside = sum(map(min, ways, tuned)) / sum(ways)
        shares = f"{sum(tuned) / sum(plain):.0%} | {best / sum(plain):.1%} | {beside:.1%}"
        lines.append(f"| {kind} | {dtype} | {len(some)} | {faster} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, or takes rows measured before; prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "efficientnet_b0", "convnext_tiny"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=default_processes(), help="that compile at once")
    parser.add_argument("--rows", type=Path, help="measured before")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.rows:
        found = json.loads(args.rows.read_text(encoding="utf-8"))
    else:
        rows = measure(args.models, args.device, args.seconds, args.processes)
        found = {"environment": environment(args.device), "models": args.models, "rows": rows}
    text = table(found["rows"], load_profile("nvidia-h200").predictor)
    print(text)
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
