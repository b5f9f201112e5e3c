"""`costmodel compare A.json B.json`: changes between two files of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import options, streams
from costmodel.cli.output import form_of, opened, terminal_width, use_color
from costmodel.cli.run import MISSED
from costmodel.errors import RequestError

Before = Annotated[Path, typer.Argument(metavar="A.json", help="Report, or list of reports, of before the change.")]
After = Annotated[Path, typer.Argument(metavar="B.json", help="Report, or list of reports, of after the change.")]
FailOnRegression = Annotated[
    float | None,
    typer.Option(
        "--fail-on-regression",
        metavar="PCT",
        help="Exit with status 1 if in any mode latency is longer, or speedup lower, by more than PCT percent, and the "
        "whole 90 % interval of the change is on that side of 0; also if B.json lacks a case or mode of A.json.",
    ),
]


def compare(
    before: Before,
    after: After,
    fail_on_regression: FailOnRegression = None,
    layers: options.LayersOption = None,
    format: options.FormatOption = None,  # noqa: A002 - the name of the option
    output: options.Output = None,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Compare predictions from two files that `costmodel predict --format json` wrote.

    Each mode and layer is faster, slower, the same (within 3 %) or uncertain.

    The verdict follows from the 90 % interval of the ratio, in which shared errors cancel.

    Lists are matched by model, hardware, batch size, precision and settings of torch.
    """
    if fail_on_regression is not None and not 0.0 <= fail_on_regression < float("inf"):
        raise RequestError(f"impossible --fail-on-regression {fail_on_regression:g}; give percent, such as 5")
    from costmodel.comparison.compare import compare_reports
    from costmodel.comparison.comparison_document import render_comparison
    from costmodel.comparison.report_file import read_reports

    with opened(output) as write:
        found = compare_reports(read_reports(before), read_reports(after))
        regressions = () if fail_on_regression is None else found.regressions(fail_on_regression)
        chosen, width = layers and layers.value, terminal_width(output)
        color = use_color(width)
        write(
            render_comparison(
                found, form_of(format, output).value, chosen, regressions=regressions, width=width, color=color
            )
        )
    for line in regressions:
        streams.say(f"costmodel: regression: {line}")
    if regressions:
        raise typer.Exit(MISSED)
