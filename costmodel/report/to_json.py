"""Documents as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from costmodel.report.document import Document
from costmodel.report.types import plain


def to_json(documents: Sequence[Document], as_list: bool) -> str:
    """The values of one document, or a list of the values of several."""
    values = [document.values for document in documents]
    return json_text(values if as_list else values[0])


def json_text(value: object, indent: int = 2) -> str:
    """A record as JSON that strict readers accept: ASCII, with finite numbers, without lone surrogates."""
    return json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"
