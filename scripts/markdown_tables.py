"""A profile's scores as the Markdown tables of docs/accuracy.md: figures come from its files, never from a hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from costmodel.errors import DatasetError

BEGIN, END = "<!-- accuracy: made by scripts/accuracy.py -->", "<!-- end of accuracy -->"
CPU_BEGIN, CPU_END = "<!-- CPUs: made by scripts/accuracy.py -->", "<!-- end of CPUs -->"
CPU_HEAD = (
    "profile",
    "kernels",
    "cases",
    "speedup",
    "constant",
    "within 10 %",
    "latency, `eager`",
    "`default`",
    "noise",
)


def accuracy_markdown(card: Mapping[str, Any]) -> str:
    """Tables of the scores of whole models and kernels."""
    scores = card["scores"]
    coverage = scores["coverage"]
    holds = ", ".join(f"{100 * share:.0f} % in `{mode}`" for mode, share in coverage.items())
    kernel_head = ("group", "kernels", "predictor", "networks alone", "boosting", "neighbour", "roofline", "constant")
    parts = [
        MODELS_TEXT.format(processes=card["models"]["cases"]),
        markdown_table(
            ("mode", "cases", "", "mean error", "median", "within 10 %", "constant"), _model_rows(scores["models"])
        ),
        f"Nominal 90 % intervals of speedup, their widths taken from other families, hold {holds}.",
        KERNELS_TEXT,
        markdown_table(kernel_head, _kernel_rows(scores["kernels"])),
    ]
    return "\n\n".join(parts)


def cpu_markdown(cards: Sequence[Mapping[str, Any]]) -> str:
    """A line a CPU's profile: what it was trained on, errors with families left out, and how latencies repeat."""
    rows = []
    for card in cards:
        (row,) = [row for row in card["scores"]["models"] if row["cases_of"] == "all"]
        latency = {row["mode"]: percent(row["mean_error"]) for row in card["scores"]["latency"]}
        errors = [percent(row[name]) for name in ("mean_error", "constant_mean_error", "within_10")]
        noise = percent(max(card["models"]["noise"].values()))
        about = [f"`{card['name']}`", f"{card['units']['trained_on']:,}", str(int(row["cases"]))]
        rows.append([*about, *errors, latency["eager"], latency["default"], noise])
    return markdown_table(CPU_HEAD, rows)


MODELS_TEXT = (
    "Speedup over eager, each case predicted with its whole model family left out of training, kernel by kernel and\n"
    "model by model, for the host that measured it, as a probe told (see `--host`).\n"
    "A case is a model at a batch size, precision and layout; they were measured in {processes}\n"
    "processes on several machines. Each counts once, with the middle of its processes\n"
    "([why](#a-case-counts-once)). *uncalibrated host* is for the profile's host, and counts every process by itself;\n"
    "so does *each process*. *timeline alone* is without what other models tell of models like them;\n"
    "*family not held out* is with residuals of others of the family; kernels and costs are without the family.\n"
    "*constant* is the geometric mean of the other families' speedups."
)
KERNELS_TEXT = (
    "Device time of single kernels, each predicted by what saw nothing of its shape, at any batch size, precision or\n"
    "layout, of the family of models that it comes from, or of the models that are tested with it (mean relative\n"
    "error; the same folds in every column). The predictor is the mean of networks and of boosted trees, more and\n"
    "larger ones than those of *boosting*:"
)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; cells are Markdown themselves."""
    return "\n".join([_line(head), _line(["---"] * len(head)), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def percent(share: float) -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f} %"


def _model_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    names = ("mean_error", "median_error", "within_10", "constant_mean_error")
    return [
        [f"`{r['mode']}`", r["cases_of"], str(int(r["cases"])), *(percent(r[name]) for name in names)] for r in rows
    ]


def _kernel_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    by_group: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(row["group"], {})[row["way"]] = row
    ways = ("predictor", "network", "boosting", "neighbour", "roofline", "constant")
    return [
        [group, str(int(found["network"]["kernels"])), *(percent(found[way]["mean_error"]) for way in ways)]
        for group, found in by_group.items()
    ]


def replace_section(path: Path, text: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The file's text with what lies between the two marks replaced.

    Raises:
        DatasetError: the file has no such marks.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise DatasetError(f"{path}: the marks {begin_mark} and {end_mark} are missing")
    return f"{before}{begin_mark}\n{text}\n{end_mark}{after}"
