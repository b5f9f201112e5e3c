"""Tables of measurements as Parquet files: units with their times, whole models with theirs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.errors import DatasetError, GraphError, first_line
from costmodel.files import replacing
from costmodel.ir import parse
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import TF32_RUNNER, Kernel
from costmodel.records import one_line, open_regular, parse_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

QUANTILES = ("p10", "p25", "p50", "p75", "p90")
WORKSPACE = "workspace_bytes"
"""Column of the bytes that an isolated convolution allocates beside its result; NaN where not measured."""
COLUMNS = (
    ["key", "graph", "runner", "unit", "way", "position", "source", "status"]
    + [f"device_us_{q}" for q in QUANTILES]
    + [f"host_us_{q}" for q in QUANTILES]
    + ["relative_error", "copies", WORKSPACE]
)
TEXTS = ("key", "graph", "runner", "unit", "way", "source", "status")
"""Columns of text; the others are numbers."""
DEVICE = f"device_us_{QUANTILES[2]}"
NEEDED = (*TEXTS, "position", DEVICE)
"""Required columns."""
MOST = 1e15
"""Largest accepted time or number of bytes."""
MOST_BYTES = 4 << 30
"""Largest size of a file that is read."""
ALIGNED = "aligned"
"""Metadata key: number of leading rows whose host times were aligned with the rest, and by which line."""
TRUSTED = "ok"
"""Status of a row that may be trained on; noisy, failed and wrong rows are kept with their own status."""


def units_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Table of measured units from the rows of a ledger, with quantiles in separate columns, microseconds."""
    import pandas as pd

    flat = []
    for row in rows:
        record = {name: row.get(name) for name in COLUMNS}
        for quantity in ("device_us", "host_us"):
            values = _quantiles(row, quantity)
            record.update({f"{quantity}_{q}": value for q, value in zip(QUANTILES, values, strict=True)})
        flat.append(record)
    frame = pd.DataFrame(flat, columns=list(COLUMNS))
    numeric = [name for name in COLUMNS if name.startswith(("device_us", "host_us"))] + ["relative_error", WORKSPACE]
    return frame.astype(dict.fromkeys(numeric, "float32"))


def _quantiles(row: Mapping[str, Any], quantity: str) -> list[float | None]:
    values = row.get(quantity) or [None] * len(QUANTILES)
    known = isinstance(values, (list, tuple)) and len(values) == len(QUANTILES)
    if known and all(value is None or type(value) in (int, float) for value in values):
        return list(values)
    raise DatasetError(f"the {quantity} of the case {row.get('key')} is damaged: {values!r}")


def write_frame(frame: pd.DataFrame, path: Path, about: Mapping[str, Any]) -> None:
    """Write a table, with metadata such as the environment it was measured in."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"costmodel": json.dumps(about).encode()})
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)


def read_frame(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a table and its metadata.

    Raises:
        DatasetError: the file is missing or is no such table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path, MOST_BYTES) as file:
            table = pq.read_table(file)
        about = parse_json((table.schema.metadata or {}).get(b"costmodel", b"{}"))
        _check(table)
        frame = table.replace_schema_metadata(None).to_pandas()
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DatasetError(f"{path}: not a dataset: {one_line(first_line(reason))}") from error
    if not isinstance(about, dict):
        raise DatasetError(f"{path}: not a dataset: it does not record what it was measured on")
    return frame, about


def _check(table: pa.Table) -> None:
    """Refuse a table with missing columns, other types or impossible times.

    Raises:
        ValueError: the table is refused; one line says why.
    """
    names = table.column_names
    if missing := [name for name in NEEDED if name not in names]:
        raise ValueError(f"it has no column {missing[0]}")
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have one name")
    for name in (name for name in COLUMNS if name in names):
        _check_column(name, table[name])
    _check_trusted(table)


def _check_column(name: str, column: pa.ChunkedArray) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, types = column.type, pa.types
    if types.is_null(kind):
        return
    if name in TEXTS:
        if not (types.is_string(kind) or types.is_large_string(kind)):
            raise ValueError(f"its column {name} is {kind}, not text")
        return
    if not (types.is_integer(kind) or types.is_floating(kind)):
        raise ValueError(f"its column {name} is {kind}, not numbers")
    most = 1.0 if name == "position" else math.inf if name == "relative_error" else MOST
    found = pc.min_max(column).as_py()
    if any(value is not None and not math.isnan(value) and not 0 <= value <= most for value in found.values()):
        raise ValueError(f"its column {name} holds {found['min']:g} to {found['max']:g}, not 0 to {most:g}")


def _check_trusted(table: pa.Table) -> None:
    """Refuse a row that may be trained on but has no positive device time."""
    import pyarrow.compute as pc

    times = pc.filter(table[DEVICE], pc.fill_null(pc.equal(table["status"], TRUSTED), False))
    if len(times) and not pc.all(pc.fill_null(pc.greater(times, 0), False)).as_py():
        raise ValueError(f"a row of status {TRUSTED} has no positive {DEVICE}")


def kernel_of(graph_text: str, runner: str) -> Kernel:
    """Kernel that a row measured.

    Raises:
        DatasetError: the row's graph cannot be parsed.
    """
    try:
        graph = parse(graph_text)
    except GraphError as error:
        raise DatasetError(f"a row's graph is damaged: {error}") from error
    if "scaled_dot_product_attention" in graph_text:  # rows may distinguish masks that the extractor does not
        graph = Extractor(graph).extract(op.name for op in graph.ops)
    return Kernel("triton" if runner == "inductor" else "aten", graph, (), tf32=runner == TF32_RUNNER)
