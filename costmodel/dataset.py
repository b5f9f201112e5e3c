"""Tables of measurements as Parquet files: units with their times, whole models with theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.errors import DatasetError, GraphError
from costmodel.files import replacing
from costmodel.ir import parse
from costmodel.kernels import Extractor, Kernel

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = ("p10", "p25", "p50", "p75", "p90")
WORKSPACE = "workspace_bytes"
"""What a lone convolution allocates beside its result; not a number where it was not measured."""
COLUMNS = (
    ["key", "graph", "runner", "unit", "way", "position", "source", "status"]
    + [f"device_us_{q}" for q in QUANTILES]
    + [f"host_us_{q}" for q in QUANTILES]
    + ["relative_error", "copies", WORKSPACE]
)
NEEDED = ("key", "graph", "runner", "unit", "way", "position", "source", "status", f"device_us_{QUANTILES[2]}")
"""Columns without which a table tells nothing; later versions add others."""
ALIGNED = "aligned"
"""In what a table is about: how many of its first rows' host times became like the others', and along which line."""
TRUSTED = "ok"
"""The status of a row that may be trained on; noisy, failed and wrong ones are kept beside them, marked."""


def units_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a measured case, from the rows of a ledger; quantiles in columns of their own, microseconds."""
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
    """Writes a table with what it is about (the environment it was measured in) in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"costmodel": json.dumps(about).encode()})
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)


def read_frame(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table and what it is about.

    Raises:
        DatasetError: the file is missing or is no such table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {}).get(b"costmodel", b"{}"))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{path}: not a dataset: {str(error).splitlines()[0]}") from error
    if missing := [name for name in NEEDED if name not in table.column_names]:
        raise DatasetError(f"{path}: not a dataset: it has no column {missing[0]}")
    if not isinstance(about, dict):
        raise DatasetError(f"{path}: not a dataset: nothing tells what it was measured on")
    return table.to_pandas(), about


def kernel_of(graph_text: str, runner: str) -> Kernel:
    """The kernel that a row measured.

    Raises:
        DatasetError: the row's graph cannot be parsed.
    """
    try:
        graph = parse(graph_text)
    except GraphError as error:
        raise DatasetError(f"a row's graph is damaged: {error}") from error
    if "scaled_dot_product_attention" in graph_text:  # older rows tell masks that are held from those that are not
        graph = Extractor(graph).extract(op.name for op in graph.ops)
    return Kernel("triton" if runner == "inductor" else "aten", graph, ())
