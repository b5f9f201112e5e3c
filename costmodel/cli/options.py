"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli.completion import complete_hardware, complete_models


class Precision(StrEnum):
    """Element types of parameters and inputs."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Format(StrEnum):
    """Forms of a report."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    HTML = "html"


class Capture(StrEnum):
    """Frontends that capture a model's graph."""

    RUN = "run"
    FX = "fx"
    EXPORT = "export"
    DYNAMO = "dynamo"


class Layers(StrEnum):
    """Choices of the layers that a report shows."""

    TOP = "top"
    ALL = "all"
    NONE = "none"


class Sort(StrEnum):
    """Orders of sibling modules."""

    TIME = "time"
    GAIN = "gain"
    NAME = "name"


MODEL_HELP = (
    "densenet121 (torchvision), timm:NAME, hf:CONFIG, path/to/file.py:callable, package.module:callable, or model.pt2 "
    "(torch.export)."
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=complete_models)]
Models = Annotated[list[str], typer.Argument(metavar="MODEL...", help=MODEL_HELP, autocompletion=complete_models)]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        help="Hardware profile; default: this machine's GPU, else nvidia-h200.",
        autocompletion=complete_hardware,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="NAME|SPEED",
        help="CPU launch overhead: name of a host calibrated by `collect host`, or a speed relative to the profile's, "
        "such as 0.8. Default: an undisturbed machine; intervals then cover slower ones.",
    ),
]
BatchSize = Annotated[int | None, typer.Option("-b", "--batch-size", help="Images in a forward pass; default: 1.")]
SeveralHardware = Annotated[
    list[str] | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        help="Hardware profile; repeat for several. Default: this machine's GPU, else nvidia-h200.",
        autocompletion=complete_hardware,
    ),
]
BatchSizes = Annotated[
    list[int] | None,
    typer.Option("-b", "--batch-size", help="Images in a forward pass; repeat for several sizes. Default: 1."),
]
ImgSize = Annotated[int | None, typer.Option("--img-size", help="Height and width; default: the model's own.")]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="Convert parameters and inputs to this element type; default: float32 for a model of a library, and none "
        "for one from your code, which keeps its own.",
    ),
]


class Amp(StrEnum):
    """Precisions of autocast."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class MatmulPrecision(StrEnum):
    """Precisions of float32 matmuls."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


AmpOption = Annotated[
    Amp | None,
    typer.Option("--amp", help="Each call runs under torch.autocast of this precision; the model stays in float32."),
]
MatmulPrecisionOption = Annotated[
    MatmulPrecision,
    typer.Option(
        "--matmul-precision",
        help="As torch.set_float32_matmul_precision: with high, and with medium, float32 matmuls compute in TF32.",
    ),
]
Training = Annotated[
    bool,
    typer.Option("--training", help="Predict a training step: forward pass, loss, backward pass and optimizer."),
]
OptimizerOption = Annotated[
    str | None,
    typer.Option("--optimizer", metavar="NAME", help="With --training: sgd (default), momentum, adam or adamw."),
]
CudnnBenchmark = Annotated[
    bool,
    typer.Option(
        "--cudnn-benchmark", help="torch.backends.cudnn.benchmark is on: convolutions may be up to 1.5 times as fast."
    ),
]
ChannelsLast = Annotated[bool, typer.Option("--channels-last", help="Parameters and inputs in channels_last.")]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format", help="Form of the result; default: by the suffix of -o FILE (.html .json .csv .md), else table."
    ),
]
LayersOption = Annotated[
    Layers | None,
    typer.Option(
        "--layers",
        help="Flat list of layers in place of the module tree, or none of both; default: the tree (table), top (md), "
        "all (html), none (csv). JSON holds all.",
    ),
]
Depth = Annotated[
    int | None, typer.Option("--depth", min=1, metavar="LEVELS", help="Levels of the module tree; default: all.")
]
SortOption = Annotated[
    Sort | None, typer.Option("--sort", help="Order of sibling modules; default: order of execution.")
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        min=1,
        metavar="ROWS",
        help="Rows of the module tree, those of most time, or with --sort gain of most change; default: 40.",
    ),
]
Explain = Annotated[
    bool,
    typer.Option("--explain", help="Also reasons: what bounds each mode, graph breaks, fallbacks, layers that lose."),
]
CaptureOption = Annotated[
    Capture,
    typer.Option(
        "--capture",
        help="Capture by one recorded forward pass (run), by FX or torch.export, or by dynamo: a recorded pass that is "
        "checked for graph breaks also where the model is known to be one graph.",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Trace the model with Dynamo to find graph breaks, unless it is known to be one graph.",
    ),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        "--shapes",
        metavar="SHAPE,...",
        help="Further input shapes, such as 8x3x224x224,32x3x224x224: with --explain, how many variants are compiled.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of processes, for several models.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to FILE.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors on standard error.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
