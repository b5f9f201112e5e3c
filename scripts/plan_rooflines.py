"""Distance of plans from the roofline of their kernels, predicted and, where a plan was measured, measured.

python scripts/plan_rooflines.py -o docs/data/plan_rooflines_h200.csv                        predict
python scripts/plan_rooflines.py -o docs/data/plan_rooflines_h200.csv --write docs/plans.md  the table

Measured latencies are those of docs/data/expert_h200.csv.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from expert_tables import Case, read_rows, times_of
from markdown_tables import markdown_table, print_or_write
from plan_tables import MODELS

COLUMNS = ("model", "batch_size", "precision", "plan_ms", "roofline_ms")
KINDS = (("1", "float16"), ("32", "float16"), ("1", "float32"), ("32", "float32"))
MEASURED = Path(__file__).parent.parent / "docs/data/expert_h200.csv"


def predicted(hardware: str) -> Iterator[dict[str, str | float]]:
    """A row for each model and kind."""
    from costmodel import plan
    from costmodel.zoo import load

    for model in MODELS:
        for batch_size, precision in KINDS:
            loaded = load(model, batch_size=int(batch_size), precision=precision)
            made = plan(
                loaded.module, loaded.inputs, hardware=hardware, model_name=model, check=False, matmul_precision="high"
            )
            values = (
                model,
                batch_size,
                precision,
                round(made.latency_ms["plan"], 5),
                round(made.roofline_ms or 0.0, 5),
            )
            yield dict(zip(COLUMNS, values, strict=True))


def markdown(rows: Sequence[Mapping[str, str]], measured: Mapping[Case, Mapping[str, float]]) -> str:
    """Table of distances: a model a row, a kind a column; the last row has geometric means."""
    found: dict[str, dict[tuple[str, str], tuple[float, float | None]]] = {}
    for row in rows:
        bound, kind = float(row["roofline_ms"]), (row["batch_size"], row["precision"])
        ms = measured.get((row["model"], *kind), {}).get("plan")
        distance = float(row["plan_ms"]) / bound
        found.setdefault(row["model"], {})[kind] = distance, None if ms is None else ms / bound

    def cell(predicted_one: float, measured_one: float | None) -> str:
        return f"{'-' if measured_one is None else f'{measured_one:.1f}'} ({predicted_one:.1f})"

    lines = [(model, *(cell(*cells[kind]) for kind in KINDS)) for model, cells in found.items()]
    means = []
    for kind in KINDS:
        known = [one for cells in found.values() if (one := cells[kind][1]) is not None]
        means.append(
            cell(geometric_mean(cells[kind][0] for cells in found.values()), geometric_mean(known) if known else None)
        )
    head = ("model", *(f"batch {batch_size}, {precision}" for batch_size, precision in KINDS))
    return markdown_table(head, [*lines, ("*geometric mean*", *means)])


def main() -> None:
    """Predict, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table of the file into a document")
    args = parser.parse_args()
    if args.write:
        text = markdown(read_rows(args.output), times_of(read_rows(MEASURED)))
        print_or_write({"rooflines": text}, "scripts/plan_rooflines.py", args.write)
        return
    with args.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in predicted(args.hardware):
            writer.writerow(row)
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
