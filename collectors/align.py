"""Host times that two ways of measuring told -> as the later way tells them, by kernels that were measured again.

    python -m collectors.align units.parquet again.parquet --rows 121530 -o units.parquet

Host times are told for a host of one speed, which is found by launches beside each call. Where a later version finds it
in another way, what was measured before does not go with what is measured since. A sample of both, measured again on
one host, tells how far each is from that: a line for each, and both lines together are how the first become like the
rest. Device times are left as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from costmodel.dataset import ALIGNED, QUANTILES, TRUSTED, kernel_of, read_frame, write_frame
from costmodel.errors import CostmodelError, DatasetError
from costmodel.train import HOST

if TYPE_CHECKING:
    import pandas as pd

Values = npt.NDArray[np.floating]
AGAIN = "_again"
"""Ends the names of columns of what was measured again."""
LEAST_KINDS = 5
"""Kinds of kernels that must have been measured again of either part, to tell a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """after = offset + slope x before; microseconds."""

    offset: float
    slope: float

    @classmethod
    def through(cls, before: Sequence[float], after: Sequence[float], weights: Sequence[float]) -> Line:
        """The line of least squared relative errors."""
        slope, offset = np.polyfit(before, after, 1, w=np.sqrt(weights) / np.asarray(after))
        return cls(float(offset), float(slope))

    def at(self, before: Values) -> Values:
        """Where the line leads."""
        return self.offset + self.slope * before

    def then_back(self, other: Line) -> Line:
        """This line, and then back along another: what `other` would lead to the same place."""
        return Line((self.offset - other.offset) / other.slope, self.slope / other.slope)


def align_hosts(frame: pd.DataFrame, again: pd.DataFrame, rows: int) -> tuple[pd.DataFrame, Line]:
    """The dataset with the host times of its first rows as the others', and the line that leads there.

    Kernels of a kind are taken together, by their means: single host times differ by a tenth from one measurement to
    the next, and a line through points that are uncertain in both directions is too flat.

    Args:
        frame: a dataset.
        again: kernels of it from before and behind `rows`, measured again on one host.
        rows: so many of its rows were measured in the earlier way.

    Raises:
        DatasetError: too few kinds of kernels were measured again.
    """
    frame = frame.reset_index(drop=True)
    both = measured_twice(frame, again)
    early, late = (_line(both[part], rows) for part in (both["row"] < rows, both["row"] >= rows))
    line = early.then_back(late)
    for column in (f"host_us_{quantile}" for quantile in QUANTILES):
        told = frame[column].to_numpy(copy=True)
        told[:rows] = line.at(told[:rows])
        frame[column] = told
    return frame, line


def measured_twice(frame: pd.DataFrame, again: pd.DataFrame) -> pd.DataFrame:
    """The rows of a dataset whose host times are told again: as columns that end in AGAIN, and each with its `row`."""
    both = frame.assign(row=frame.index).merge(again, on="key", suffixes=("", AGAIN))
    trusted = (both[["status", f"status{AGAIN}"]] == TRUSTED).all(axis=1)
    return both[trusted & both[[HOST, f"{HOST}{AGAIN}"]].notna().all(axis=1)]


def _line(both: pd.DataFrame, rows: int) -> Line:
    """From what a part of the rows told to what is told now."""
    graphs = zip(both["graph"], both["runner"], strict=True)
    kind = [kernel_of(graph, runner).anchor.base for graph, runner in graphs]
    kinds = both.groupby(kind)[[HOST, f"{HOST}{AGAIN}"]].agg(["mean", "size"])
    if len(kinds) < LEAST_KINDS:
        found = f"of a part, {len(kinds)} kinds of kernels were measured again"
        raise DatasetError(f"{found}; {LEAST_KINDS} are needed on either side of row {rows}")
    columns = (HOST, "mean"), (f"{HOST}{AGAIN}", "mean"), (HOST, "size")
    return Line.through(*(kinds[column].tolist() for column in columns))


def main() -> None:
    """Aligns the host times of a dataset's first rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path)
    parser.add_argument("again", type=Path, help="kernels of it, measured again on one host")
    parser.add_argument("--rows", type=int, required=True, help="so many rows were measured in the earlier way")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        frame, about = read_frame(args.units)
        if ALIGNED in about:
            raise DatasetError(f"{args.units}: its host times are aligned already")
        aligned, line = align_hosts(frame, read_frame(args.again)[0], args.rows)
        write_frame(aligned, args.output, about | {ALIGNED: {"rows": args.rows, **asdict(line)}})
        print(f"{args.rows} rows: {line.offset:+.2f} us, times {line.slope:.3f}")
    except CostmodelError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
