"""Reports as JSON: an object for one, a list for several."""

from __future__ import annotations

import json
from collections.abc import Sequence

from costmodel.report.types import Report


def to_json(reports: Report | Sequence[Report]) -> str:
    """The JSON text; ASCII, indented, with no number that JSON does not have."""
    value = reports.to_dict() if isinstance(reports, Report) else [report.to_dict() for report in reports]
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
