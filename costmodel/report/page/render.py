"""Pages from templates, in which every text is escaped, with the styles and the script inside them."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from costmodel.report.document import Document
from costmodel.report.escape import terminal
from costmodel.report.page.data import case_data
from costmodel.report.page.facts import PageFacts
from costmodel.report.page.summary import summary_of
from costmodel.report.page.tables import plain_table
from costmodel.report.types import Report

_HERE = "costmodel.report.page"
DOCUMENT_STYLES = ("base.css",)
PAGE_STYLES = ("base.css", "page.css", "charts.css")
SCRIPTS = (
    "dom.js",
    "units.js",
    "model.js",
    "tooltip.js",
    "tree.js",
    "timeline.js",
    "icicle.js",
    "roofline.js",
    "graph.js",
    "page.js",
)
"""Parts of the one script of a page, in order; each file is a chart or what several charts use."""


def report_page(reports: Sequence[Report], facts: PageFacts, layers: str = "all") -> str:
    """The page of predictions.

    Args:
        reports: predictions, in order.
        facts: facts beside them.
        layers: `none` leaves out modules and kernels.
    """
    cases = [case_data(report, index, facts, layers) for index, report in enumerate(reports)]
    has_script = any(case.script for case in cases)
    title = ", ".join(dict.fromkeys(report.model for report in reports))
    return _render(
        "report.html.jinja",
        PAGE_STYLES,
        SCRIPTS if has_script else (),
        title=f"costmodel: {title}",
        cases=cases,
        summary=summary_of(reports, cases),
        facts=facts,
    )


def document_page(documents: Sequence[Document]) -> str:
    """The page of other documents: plans, memory, validations, profiles; it has no script."""
    title = ", ".join(document.subject for document in documents)
    blocks = [(document, [plain_table(section) for section in document.sections]) for document in documents]
    return _render("document.html.jinja", DOCUMENT_STYLES, (), title=f"costmodel: {title}", blocks=blocks)


def _render(template: str, styles: Sequence[str], scripts: Sequence[str], **values: Any) -> str:
    style = _block("".join(map(_asset, styles)))
    script = _block("".join(map(_asset, scripts))) if scripts else ""
    text = (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - files of this package
            script=Markup(script),  # noqa: S704
            policy=_policy(style, script),
            **values,
        )
    )
    return text if text.endswith("\n") else f"{text}\n"


def _block(text: str) -> str:
    """Text of a style or script element, which a reader of XML takes as it is too."""
    return f"/*<![CDATA[*/\n{text}/*]]>*/"


def _policy(style: str, script: str) -> str:
    """Content security policy: this page's own style and script, known by their hashes, and nothing else."""
    allowed = f"style-src {_hash(style)}; script-src {_hash(script) if script else chr(39) + 'none' + chr(39)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _asset(name: str) -> str:
    return resources.files(_HERE).joinpath("assets", name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    return environment


def _printable(value: Any) -> Any:
    """A value for a template: text without control characters, and Markup as it is."""
    return terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value
