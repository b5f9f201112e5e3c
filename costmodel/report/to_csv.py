"""Documents as CSV: one table under one heading."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from costmodel.report.document import Document
from costmodel.report.escape import csv_cell


def to_csv(documents: Sequence[Document]) -> str:
    """The records of all documents, each cell made safe for a spreadsheet; keys without a column are left out."""
    buffer = io.StringIO()
    columns = documents[0].records.columns if documents else ()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for document in documents:
        for row in document.records.rows:
            writer.writerow({key: csv_cell(_flat(value)) for key, value in row.items()})
    return buffer.getvalue()


def _flat(value: Any) -> Any:
    """A cell's value: a list as its items with spaces between."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
