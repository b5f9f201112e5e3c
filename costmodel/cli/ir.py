"""`costmodel ir MODEL`: the lowered graph, or its units."""

from __future__ import annotations

from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.output import opened

Units = Annotated[bool, typer.Option("--units", help="Show the units that operators fuse into, one a line.")]


def ir(
    model: options.Model,
    units: Units = False,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = options.Precision.FLOAT32,
    channels_last: options.ChannelsLast = False,
    output: options.Output = None,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Print the graph of ATen operators that one forward pass of MODEL issues, with shapes and modules."""
    with opened(output) as write:
        from costmodel.capture import capture
        from costmodel.zoo import load

        loaded = load(
            model,
            batch_size=batch_size,
            img_size=img_size,
            precision=precision.value,
            channels_last=channels_last,
        )
        graph = capture(loaded.module, loaded.inputs, "_".join(loaded.name.split()), partial=True)
        if not units:
            write(f"{graph}\n")
            return
        from costmodel.units import fuse

        write("".join(f"{unit}\n" for unit in fuse(graph)))
