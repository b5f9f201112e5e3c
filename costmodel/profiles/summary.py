"""Summary of a profile as a document: what was measured, on which device, and how accurate the predictions are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from costmodel.report.document import Column, Document, Records, Row, Section, figures
from costmodel.report.figures import NONE, counted, whole


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


_FACT_COLUMNS = (Column("fact"), Column("value"))
_ACCURACY_COLUMNS = (
    Column("quantity"),
    Column("mode"),
    Column("cases of"),
    figures("cases", whole),
    figures("mean error", _share),
    figures("median error", _share),
    figures("within 10 %", _share),
    figures("baseline", _share),
)
BATCH_SIZES = (1, 32)
"""Batch sizes of which the summary shows intervals."""
_COVERAGE_COLUMNS = (
    Column("quantity"),
    Column("mode"),
    figures("machines", whole),
    *(figures(f"inside at batch {size}", _share) for size in BATCH_SIZES),
)
_ENVIRONMENT = ("device", "host_cpu", "cores", "threads", "driver", "cuda", "torch", "triton")
_ALL = "all"


def summary_document(name: str, card: Mapping[str, Any]) -> Document:
    """The document of a profile; JSON holds the whole card.

    Args:
        name: the profile's name.
        card: content of `card.json`. A field of another shape than expected is left out of the summary.
    """
    facts = list(_facts(card))
    accuracy = list(_accuracy_rows(card))
    sections = [Section("measured", _FACT_COLUMNS, facts)]
    if covered := list(_coverage_rows(card)):
        sections.append(Section("90 % intervals without --host, on machines left out", _COVERAGE_COLUMNS, covered))
    if accuracy:
        sections.append(Section("accuracy on held-out models", _ACCURACY_COLUMNS, accuracy))
    device = _mapping(card, "environment").get("device")
    title = f"{name}: profile of {device}" if device else name
    records = Records(("fact", "value"), [{"fact": fact, "value": value} for fact, value in facts])
    return Document(name, title, sections, card, records, (f"costmodel hardware {name} --format json prints it whole",))


def _facts(card: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Measurements and their environment, in words."""
    environment = _mapping(card, "environment")
    listed = [f"{key.replace('_', ' ')} {environment[key]}" for key in _ENVIRONMENT[1:] if key in environment]
    if listed:
        yield "environment", ", ".join(listed)
    yield from _counts("units", _mapping(card, "units"), "measured", "trained_on")
    if isinstance(dates := _mapping(card, "units").get("dates"), Sequence) and dates:
        yield "measured", " to ".join(dict.fromkeys(map(_plain, dates)))
    yield from _counts("whole models", _mapping(card, "models"), "cases", "measured", "unstable")
    if name := (base := _mapping(card, "base")).get("name"):
        changed = [f"{fact} {' -> '.join(map(_plain, pair))}" for fact, pair in _pairs(base, "changed")]
        yield "base", "; ".join([_plain(name), *changed])
    if rate := _mapping(card, "roofline").get("bandwidth_gb_s"):
        yield "memory bandwidth", f"{_plain(rate)} GB/s"
    if peaks := _mapping(_mapping(card, "roofline"), "peak_tflop_s"):
        yield "peak TFLOP/s", ", ".join(f"{kind} {_plain(peak)}" for kind, peak in peaks.items())
    machines = _mapping(card, "host").get("machines_us")
    if isinstance(machines, Sequence):
        yield "hosts", counted(len(machines), "machine")
    if own_us := _mapping(card, "host").get("probe_us"):
        yield "assumed host", f"the least disturbed of them, {_plain(own_us)} us a launch"


def _counts(name: str, found: Mapping[str, Any], *keys: str) -> Iterator[tuple[str, str]]:
    """A fact of several counts: `measured 487,877, trained on 483,381`."""
    listed = [f"{key.replace('_', ' ')} {_plain(found[key])}" for key in keys if key in found]
    if listed:
        yield name, ", ".join(listed)


def _coverage_rows(card: Mapping[str, Any]) -> Iterator[Row]:
    """A row a quantity and mode: the share inside at each batch size of BATCH_SIZES, each machine counting once."""
    shares: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in _rows(card, "coverage_by_machine"):
        batch_size, inside = _number(row.get("batch_size")), _number(row.get("inside"))
        if batch_size is not None and batch_size in BATCH_SIZES and inside is not None:
            key = str(row.get("quantity", "")), str(row.get("mode", ""))
            shares.setdefault(key, {}).setdefault(batch_size, []).append(inside)
    for key, found in shares.items():
        sizes = [found.get(size, []) for size in BATCH_SIZES]
        if (machines := max(map(len, sizes))) > 1:
            yield (*key, machines, *(sum(one) / len(one) if len(one) > 1 else None for one in sizes))


def _accuracy_rows(card: Mapping[str, Any]) -> Iterator[Row]:
    """A row a mode and set of cases: errors of latencies, of compile times, then of speedups."""
    for row in _rows(card, "latency"):
        yield ("latency", row.get("mode", ""), _ALL, *_errors(row))
    for row in _rows(card, "compile"):
        yield (f"compile time, {row.get('cache', '')}", row.get("mode", ""), _ALL, *_errors(row))
    uncalibrated_first = sorted(_rows(card, "models"), key=lambda row: "uncalibrated" not in str(row.get("cases_of")))
    for row in uncalibrated_first:
        cases = str(row.get("cases_of", ""))
        if cases.rpartition(": ")[2] == _ALL:  # `all`, and `all` under another condition; the rest are subsets
            yield ("speedup", row.get("mode", ""), _condition(cases), *_errors(row))


def _condition(cases: str) -> str:
    """A set of cases: `all, uncalibrated host` for `uncalibrated host: all`."""
    condition, _, kind = cases.rpartition(": ")
    return f"{kind}, {condition}" if condition else kind


def _errors(row: Mapping[str, Any]) -> tuple[Any, ...]:
    keys = ("cases", "mean_error", "median_error", "within_10", "constant_mean_error")
    return tuple(_number(row.get(key)) for key in keys)


def _rows(card: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a table of scores."""
    rows = _mapping(card, "scores").get(kind)
    yield from (row for row in rows if isinstance(row, Mapping)) if isinstance(rows, Sequence) else ()


def _mapping(card: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = card.get(key)
    return found if isinstance(found, Mapping) else {}


def _pairs(card: Mapping[str, Any], key: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Facts before and after."""
    for fact, pair in _mapping(card, key).items():
        if isinstance(pair, Sequence) and len(pair) == len(("before", "after")):
            yield fact, pair


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _plain(value: Any) -> str:
    """A figure as the card has it, with thousands separated."""
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
