"""`costmodel ir MODEL`: the captured graph, its units, its stream tree and StreamIt program, or a drawing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import options
from costmodel.cli.output import choose_hardware, note, opened, running_user_code
from costmodel.errors import RequestError
from costmodel.report.escape import terminal

if TYPE_CHECKING:
    from costmodel.ir import Graph
    from costmodel.profiles.profile import Profile


class Form(StrEnum):
    """Forms of a graph."""

    IR = "ir"
    UNITS = "units"
    STREAMS = "streams"
    STREAMIT = "streamit"
    DOT = "dot"
    JSON = "json"
    SVG = "svg"


As = Annotated[
    Form | None,
    typer.Option(
        "--as",
        help="ir: operators (default); units: operators that fuse into one kernel; streams: units in series and "
        "parallel; streamit: StreamIt source; dot, svg: a drawing, svg coloured by predicted speedup; json: graph and "
        "units.",
    ),
]
Units = Annotated[bool, typer.Option("--units", help="Same as --as units.")]


def ir(
    model: options.Model,
    form: As = None,
    units: Units = False,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Print the graph of ATen operators of one forward pass of MODEL, or its units, streams or drawing."""
    if units and form not in (None, Form.UNITS):
        raise RequestError(f"--units and --as {form} exclude each other")
    wanted = Form.UNITS if units else form or Form.IR
    if hardware is not None and wanted is not Form.SVG:
        raise RequestError(f"--hardware is for --as svg; --as {wanted} does not depend on it")
    with opened(output) as write:
        from costmodel.profiles.profile import load_profile

        profile = load_profile(choose_hardware(hardware, quiet)) if wanted is Form.SVG else None
        from costmodel.capture.with_partition import capture_with_partition
        from costmodel.cli.checking import checking
        from costmodel.zoo import load

        with running_user_code(model):
            request: dict[str, Any] = {"batch_size": batch_size, "img_size": img_size}
            request |= {"precision": precision and precision.value, "channels_last": channels_last}
            loaded = load(model, **request)
            for text in loaded.warnings:
                note(text, quiet)
            how = checking(model, request, check=wanted is Form.SVG, quiet=quiet)
            graph = capture_with_partition(loaded.module, loaded.inputs, "_".join(loaded.name.split()), **how)
        write(_drawn(graph, profile) if profile else _shown(graph, wanted))


def _shown(graph: Graph, form: Form) -> str:
    if form is Form.IR:
        return f"{graph}\n"
    if form is Form.STREAMIT:
        return _streamit(graph)
    from costmodel import drawing
    from costmodel.drawing.labels import unit_label
    from costmodel.prediction.layers import find_units
    from costmodel.streams import format_tree, unit_tree

    units = find_units(graph)
    if form is Form.UNITS:
        return "".join(f"{terminal(str(unit))}\n" for unit in units)
    if form is Form.STREAMS:
        return format_tree(unit_tree(graph, units), unit_label) + "\n"
    return drawing.to_dot(graph, units) if form is Form.DOT else drawing.to_json(graph, units)


def _streamit(graph: Graph) -> str:
    """StreamIt source, after comments on its rates and the cost of shared results."""
    from costmodel.streamit import filters, lower, rates, streamit
    from costmodel.streamit.replicate import join_cost

    program = lower(graph)
    rate, name = rates(program), terminal(graph.name)
    return (
        f"// {name}: {len(filters(program))} filters; a pass pops {rate.pop} and pushes {rate.push} tensors\n"
        f"// shared results, {join_cost(graph)}\n{streamit(program)}"
    )


def _drawn(graph: Graph, profile: Profile) -> str:
    from costmodel.drawing import to_svg
    from costmodel.prediction.layers import find_units
    from costmodel.prediction.unit_speedups import unit_speedups

    units = find_units(graph, profile.device)
    return to_svg(
        graph,
        units,
        unit_speedups(graph, units, profile),
        f"{graph.name}: predicted speedup of each unit on {profile.name}",
    )
