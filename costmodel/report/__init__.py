"""Report records -> text: table, JSON, CSV, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel import checks
from costmodel.checks import checked
from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.renderers import FORMATS, render_documents
from costmodel.report.types import (
    GraphBreak,
    Graphs,
    LayerPrediction,
    ModePrediction,
    Module,
    Reason,
    Report,
    Unsupported,
)

LAYERS = ("top", "all", "none")
COMPARING = ("table", "md", "html")
"""Formats in which a table of all cases follows several predictions; a program sorts records itself."""

__all__ = [
    "FORMATS",
    "LAYERS",
    "GraphBreak",
    "Graphs",
    "KernelPrediction",
    "LayerPrediction",
    "ModePrediction",
    "Module",
    "Reason",
    "Report",
    "Unsupported",
    "render",
]


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
    """Render one prediction or several as text that ends in a newline.

    Tables, Markdown and HTML of several predictions end with a table of all cases, the largest gain first.

    Args:
        reports: a single report, or a sequence; in JSON the first is an object and the second a list.
        format: one of FORMATS.
        layers: one of LAYERS: the layers to show; None for the format's own choice. JSON always holds all of them. CSV
            holds the modes, or with `all` or `top` the layers in their place.
        width: columns of the terminal, for `table`; None for no limit.
        color: whether `table` may use terminal colours.

    Raises:
        RequestError: unknown format or choice of layers.
    """
    from costmodel.report.cases_document import cases_document
    from costmodel.report.prediction_document import LAYERS_BY_FORMAT, prediction_document

    several = (reports,) if isinstance(reports, Report) else tuple(reports)
    documents = [prediction_document(report, layers or LAYERS_BY_FORMAT[format]) for report in several]
    if len(several) > 1 and format in COMPARING:
        documents.append(cases_document(several))
    return render_documents(documents, format, width, color=color, as_list=not isinstance(reports, Report))
