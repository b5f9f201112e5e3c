"""Reports as JSON: an object for one, a list for several."""

from __future__ import annotations

import json
from collections.abc import Sequence

from costmodel.report.types import Report, plain


def to_json(reports: Report | Sequence[Report]) -> str:
    """The JSON text of one report or several."""
    return json_text(reports.to_dict() if isinstance(reports, Report) else [report.to_dict() for report in reports])


def json_text(value: object, indent: int = 2) -> str:
    """A record as JSON that strict readers take: ASCII, with finite numbers, without lone surrogates."""
    return json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"
