"""Examples at the end of each command's help."""

from __future__ import annotations

EXAMPLES = {
    "predict": (
        "costmodel predict densenet121",
        "costmodel predict resnet50 mobilenet_v2 -b 1 -b 32 --precision float16",
        "costmodel predict net.py:build --explain -o report.html",
    ),
    "compare": (
        "costmodel compare before.json after.json",
        "costmodel compare before.json after.json --fail-on-regression 5",
    ),
    "plan": (
        "costmodel plan resnet50 -b 32 -o plan.json",
        "costmodel plan net.py:build --calls 1000 --memory-limit 2G",
    ),
    "validate": (
        "costmodel validate resnet50 -b 32",
        "costmodel validate net.py:build --plan plan.json --max-error 10",
    ),
    "collect": (
        "costmodel collect --budget 20m --hardware my-gpu",
        "costmodel collect models --budget 20m --hardware my-gpu",
        "costmodel collect host --host my-server",
    ),
    "train": ("costmodel train --hardware my-gpu",),
    "hardware": ("costmodel hardware", "costmodel hardware nvidia-h200"),
    "ir": (
        "costmodel ir resnet50 --as units",
        "costmodel ir googlenet --as svg -o googlenet.svg",
    ),
    "memory": (
        "costmodel memory resnet50 -b 32",
        "costmodel memory densenet121 --training --optimizer adam --save-plan checkpoints.json",
    ),
    "dataset export": ("costmodel dataset export ledger.sqlite -o units.parquet",),
    "dataset merge": ("costmodel dataset merge first.parquet second.parquet -o units.parquet",),
    "dataset transfer": (
        "costmodel dataset transfer h200.parquet --from h200.parquet --to h100.parquet -o units.parquet",
    ),
}
"""Command -> command lines, the simplest first."""


def epilog(command: str) -> str:
    """Examples of a command as the end of its help: a paragraph each, as typer joins the lines of one."""
    examples = EXAMPLES[command]
    return "\n\n".join(["Example:" if len(examples) == 1 else "Examples:", *examples])
