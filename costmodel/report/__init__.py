"""Predictions as records, and the records as text: table, json, csv, md, html."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import RequestError
from costmodel.report.types import LayerPrediction, ModePrediction, Reason, Report, Unsupported

FORMATS = ("table", "json", "csv", "md", "html")
LAYERS = ("top", "all", "none")

_DEFAULT_LAYERS = {"table": "top", "csv": "none", "md": "top", "html": "all"}

__all__ = [
    "FORMATS",
    "LAYERS",
    "LayerPrediction",
    "ModePrediction",
    "Reason",
    "Report",
    "Unsupported",
    "check_format",
    "render",
]


def check_format(format: str) -> None:  # noqa: A002
    """Nothing, if it is one of FORMATS.

    Raises:
        RequestError: it is none.
    """
    if format not in FORMATS:
        raise RequestError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")


def _reports_fault(reports: object) -> str | None:
    several = reports if isinstance(reports, Sequence) and not isinstance(reports, str) else (reports,)
    odd = [item for item in several if not isinstance(item, Report)]
    return f"must be a Report or a sequence of them, not {checks.shown(odd[0])}" if odd else None


@checked(
    reports=_reports_fault,
    format=checks.one_of(FORMATS),
    layers=checks.optional(checks.one_of(LAYERS)),
    width=checks.optional(checks.count),
    color=checks.flag,
)
def render(
    reports: Report | Sequence[Report],
    format: str = "table",  # noqa: A002 - the name of the command's option
    *,
    layers: str | None = None,
    width: int | None = None,
    color: bool = False,
) -> str:
    """One report or several as text that ends in a newline.

    Args:
        reports: a single report, or a sequence; in JSON the first is an object and the second a list.
        format: one of FORMATS.
        layers: one of LAYERS, which layers to show; None leaves it to the format. JSON always holds all of them; CSV
            holds the modes, or with `all` or `top` the layers in their place.
        width: columns of the terminal, for `table`; None for no limit.
        color: whether `table` may use terminal colours.

    Raises:
        RequestError: unknown format or choice of layers.
    """
    if format == "json":
        from costmodel.report.to_json import to_json

        return to_json(reports)
    several = (reports,) if isinstance(reports, Report) else tuple(reports)
    chosen = layers or _DEFAULT_LAYERS[format]
    if format == "table":
        from costmodel.report.table import to_table

        return to_table(several, chosen, width, color)
    if format == "csv":
        from costmodel.report.to_csv import to_csv

        return to_csv(several, chosen)
    if format == "md":
        from costmodel.report.to_markdown import to_markdown

        return to_markdown(several, chosen)
    from costmodel.report.to_html import to_html

    return to_html(several, chosen)
