"""Report records -> text: table, JSON, CSV, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel import checks
from costmodel.checks import checked
from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.page import NO_FACTS, PageFacts
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
SORTS = ("time", "gain", "name")

__all__ = [
    "FORMATS",
    "LAYERS",
    "SORTS",
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
    facts=checks.instance_of(PageFacts, "a PageFacts"),
    unicode=checks.flag,
    depth=checks.optional(checks.count),
    sort=checks.optional(checks.one_of(SORTS)),
    top=checks.optional(checks.count),
)
def render(
    reports: Report | Sequence[Report],
    format: str = "table",  # noqa: A002 - the name of the command's option
    *,
    layers: str | None = None,
    width: int | None = None,
    color: bool = False,
    facts: PageFacts = NO_FACTS,
    unicode: bool = False,
    depth: int | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> str:
    """Render one prediction or several as text that ends in a newline.

    Tables and Markdown of several predictions end with a table of all cases, the largest gain first; HTML begins so.

    Args:
        reports: a single report, or a sequence; in JSON the first is an object and the second a list.
        format: one of FORMATS.
        layers: one of LAYERS: the layers to show; None for the format's own choice, which is the module tree for
            `table`. JSON always holds all of them. CSV holds the modes, or with `all` or `top` the layers in their
            place.
        width: columns of the terminal, for `table`; None for a file, in which names are whole.
        color: whether `table` may use terminal colours.
        facts: facts that `html` shows beside the reports.
        unicode: whether `table` draws bars and branches in Unicode instead of ASCII.
        depth: levels of the module tree; None for all.
        sort: order of sibling modules: `time`, `gain` or `name`; None for execution order.
        top: rows of the module tree, those of most time; None for 40.

    Raises:
        RequestError: unknown format or choice of layers.
    """
    if format == "html":
        from costmodel.report.page.render import report_page

        return report_page((reports,) if isinstance(reports, Report) else tuple(reports), facts, layers or "all")
    from costmodel.report.cases_document import cases_document
    from costmodel.report.prediction_document import LAYERS_BY_FORMAT, prediction_document

    several = (reports,) if isinstance(reports, Report) else tuple(reports)
    if format == "table":
        from costmodel.report.prediction_terminal import Look, to_terminal
        from costmodel.report.tree_rows import ROWS

        look = Look(width, color, unicode, depth, sort, ROWS if top is None else top)
        text = to_terminal(several, look, layers)
        if len(several) == 1:
            return text
        return f"{text}\n{render_documents((cases_document(several),), format, width, color=color)}"
    documents = [prediction_document(report, layers or LAYERS_BY_FORMAT[format]) for report in several]
    if len(several) > 1 and format == "md":
        documents.append(cases_document(several))
    return render_documents(documents, format, width, color=color, as_list=not isinstance(reports, Report))


def fragment(report: Report) -> str:
    """A report as a fragment of HTML for a notebook."""
    from costmodel.report.notebook import fragment

    return fragment(report)
