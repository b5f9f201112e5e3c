"""Figures of experiments: lines and bars with quartiles, saved as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from costmodel.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 80
COLORS = 128
FORMATS = ("png", "svg")


def new_figure(panels: int = 1, columns: int = 3, width: float = 6.4, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """Figure with panels in a grid; one panel has the whole width."""
    from matplotlib.figure import Figure

    across = min(columns, max(panels, 1))
    down = -(-max(panels, 1) // across)
    wide = width if across == 1 else 4.2 * across
    figure = Figure(figsize=(wide, height if down == 1 else 3.4 * down), layout="constrained")
    axes = [figure.add_subplot(down, across, index + 1) for index in range(max(panels, 1))]
    return figure, axes


def finish(axes: Axes, title: str, x: str, y: str, *, log_x: bool = False, log_y: bool = False) -> None:
    """Title and labels of a panel; a legend where something is labelled."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    has_data = axes.has_data()
    if log_x and has_data:
        axes.set_xscale("log", base=2)
    if log_y and has_data:
        axes.set_yscale("log")
    axes.set_axisbelow(True)
    axes.grid(visible=True, linewidth=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=7)


def lines(axes: Axes, frame: pd.DataFrame, x: str, by: str, scale: float = 1.0) -> None:
    """One line with quartile bars for each value of a column."""
    for name, rows in frame.groupby(by, sort=False):
        ordered = rows.sort_values(x)
        axes.errorbar(
            ordered[x],
            ordered["value"] * scale,
            yerr=quartiles(ordered, scale),
            label=str(name),
            marker="o",
            ms=3,
            lw=1,
        )


def bars(axes: Axes, frame: pd.DataFrame, x: str, by: str, scale: float = 1.0) -> None:
    """Groups of bars with quartile bars: a group for each value of `x`, a bar for each value of `by`."""
    places = list(dict.fromkeys(frame[x].astype(str)))
    kinds = list(dict.fromkeys(frame[by].astype(str)))
    width = 0.8 / max(len(kinds), 1)
    for number, kind in enumerate(kinds):
        rows = frame[frame[by].astype(str) == kind].drop_duplicates(x)
        at = np.array([places.index(str(name)) for name in rows[x]]) + (number - (len(kinds) - 1) / 2) * width
        spread = quartiles(rows, scale)
        axes.bar(at, rows["value"] * scale, width, yerr=spread if spread.any() else None, label=kind, capsize=2)
    axes.set_xticks(range(len(places)), places, rotation=30, ha="right", fontsize=7)


def quartiles(rows: pd.DataFrame, scale: float = 1.0) -> Any:
    """Distances of the quartiles from the values, (2, rows); 0 where there are none."""
    low = (rows["value"] - rows["low"]).clip(lower=0).fillna(0.0) * scale
    high = (rows["high"] - rows["value"]).clip(lower=0).fillna(0.0) * scale
    return np.array([low, high], dtype=float)


def panels(frame: pd.DataFrame, by: str, draw: Callable[[Axes, pd.DataFrame, str], None], columns: int = 3) -> Figure:
    """Figure with a panel for each value of a column."""
    groups = list(frame.groupby(by, sort=False))
    figure, axes = new_figure(len(groups), columns)
    for panel, (name, rows) in zip(axes, groups, strict=False):
        draw(panel, rows, str(name))
    return figure


def save(figure: Figure, directory: Path, name: str) -> Sequence[Path]:
    """Write a figure in each of FORMATS; equal figures give equal files."""
    import matplotlib as mpl

    written = []
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        for kind in FORMATS:
            path = directory / f"{name}.{kind}"
            with replacing(path) as temporary:
                metadata = {"Date": None} if kind == "svg" else {"Software": None}
                figure.savefig(temporary, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
                if kind == "png":
                    _shrink(temporary)
            written.append(path)
    return written


def _shrink(path: Path) -> None:
    """Store an image with a palette of COLORS, which takes a third of the bytes."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(COLORS)
    small.save(path, format="PNG", optimize=True)
