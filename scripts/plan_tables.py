"""Tables of docs/plans.md: plans beside torch.compile's modes, measured by scripts/measure_and_compare.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markdown_tables import markdown_table, percent

BEGIN, END = "<!-- plans: made by scripts/measure_and_compare.py -->", "<!-- end of plans -->"
MOVES_BEGIN, MOVES_END = "<!-- moves: made by scripts/measure_and_compare.py -->", "<!-- end of moves -->"
OTHERS_BEGIN, OTHERS_END = "<!-- others: made by scripts/measure_and_compare.py -->", "<!-- end of others -->"
ORACLES_TEXT = (
    "Oracles of Goldfarb, *Evaluating the PyTorch compiler* (2024), beside this one: geometric means of speedups\n"
    "over eager, measured, and in parentheses predicted. *Theoretical* is the sum of each block's fastest backend: a\n"
    "bound for blocks that run one after another without fusion between them; plans pass it by CUDA streams and by\n"
    "fusion across blocks. *Published* is that study's dynamic program, run in one CUDA graph:"
)
ORACLES_HEAD = ("cases", "models", "fastest mode", "theoretical", "published", "plan")
MODELS = (
    *("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1"),
    *("vgg16_bn", "resnet18", "efficientnet_b0", "convnext_tiny", "vit_b_16", "inception_v3"),
)
"""Six models of the study, and six more."""
UNSEARCHED, UNFORKED, UNMERGED = "unsearched", "unforked", "unmerged"
"""Variants of a plan: cuDNN's default algorithms; one CUDA stream; no graph rewrites at single places."""
BEFORE = "before"
"""Name of the plan that another version made."""
MODES = ("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

SLOW_HOST = 0.7
"""Host speed, relative to the profile's, below which a host counts as disturbed by other processes."""

Record = Mapping[str, Any]
"""One case: `case` (model, batch size, precision), `modes` as in `Validation`, or `error`."""


def best_mode(record: Record) -> str:
    """Fastest measured mode, eager included."""
    measured: dict[str, float] = {name: mode["measured_ms"] for name, mode in record["modes"].items() if name in MODES}
    return min((name for name, ms in measured.items() if ms), key=measured.__getitem__)


def gain(record: Record, plan: str = "plan") -> float | None:
    """Measured latency of the fastest mode over that of a plan; None if the plan was not measured."""
    planned = record.get("modes", {}).get(plan, {}).get("measured_ms")
    return record["modes"][best_mode(record)]["measured_ms"] / planned if planned else None


def latest(records: Sequence[Record]) -> list[Record]:
    """Last record of each case, in the order of first measurement."""
    return list({tuple(record["case"]): record for record in records}.values())


def lines(records: Sequence[Record]) -> list[str]:
    """A line a record, and a summary."""
    found = [_line(record) for record in records]
    gains = [value for record in records if (value := gain(record))]
    if gains:
        mean = statistics.geometric_mean(gains)
        found.append(f"{len(gains)} cases: geometric mean gain {mean:.3f}, least {min(gains):.3f}")
    return found


def _line(record: Record) -> str:
    case = "{}@{} {}".format(*record["case"])
    value = gain(record)
    if value is None:
        return f"{case}: {record.get('error') or record['modes']['plan']['note']}"
    modes, best = record["modes"], best_mode(record)
    latencies = [
        f"{name} {mode['measured_ms']:.3f} ms" + (f" ({mode['predicted_ms']:.3f})" if mode["predicted_ms"] else "")
        for name, mode in modes.items()
        if mode["measured_ms"]
    ]
    replaced = f", replaced: {' '.join(record['replaced'])}" if record["replaced"] else ""
    return f"{case}: {', '.join(latencies)}; gain over {best} {value:.3f}{replaced}"


def comparison_markdown(records: Sequence[Record]) -> str:
    """Gains of plans over the fastest mode by model and setting, errors of predicted latencies, and oracles.

    The last measurement of a case counts; in the table of oracles, the last one that has the study's oracles.
    """
    usable = [record for record in records if gain(record)]
    known = latest(usable)
    gains = [value for record in known if (value := gain(record))]
    device = known[0]["device"] if known else "no device"
    text = (
        f"Latency of the fastest of eager, `default` and `reduce-overhead` over latency of the plan, measured in turn\n"
        f"in one process on an {device}, inputs nchw; in parentheses, as predicted beforehand. {len(gains)} cases:\n"
        f"geometric mean {statistics.geometric_mean(gains):.2f}, least {min(gains):.2f}."
        f"{_on_undisturbed_hosts(known)}{_since_before(known)}"
    )
    errors = "Errors of predicted latency, host calibrated by a probe, by a profile with kernels of these models:"
    parts = [text, _grid(known, _cell, _mean), errors, _errors(known)]
    if studied := latest([one for one in usable if gain(one, "published") and "theoretical_ms" in one]):
        parts += [ORACLES_TEXT, _oracles(studied)]
    return "\n\n".join(parts)


def _since_before(known: Sequence[Record]) -> str:
    """Sentence on cases measured beside the plan of another version; empty if there are none."""
    both = [record["modes"] for record in known if gain(record, BEFORE)]
    ratios = [modes[BEFORE]["measured_ms"] / modes["plan"]["measured_ms"] for modes in both]
    if not ratios:
        return ""
    faster = sum(ratio > 1 for ratio in ratios)
    return (
        f" In {len(ratios)} cases the plan of an earlier version was\n"
        f"measured beside it: {faster} are faster now, geometric mean {statistics.geometric_mean(ratios):.2f}."
    )


def others_markdown(records: Sequence[Record]) -> str:
    """Gains of plans of further models over the fastest mode, by model and setting."""
    known = [record for record in latest(records) if gain(record)]
    least = min(value for record in known if (value := gain(record)))
    said = f"{len(known)} cases: geometric mean {_mean(known)}, least {least:.2f}.{_on_undisturbed_hosts(known)}"
    return f"{said}\n\n{_grid(known, _cell, _mean)}"


def _on_undisturbed_hosts(known: Sequence[Record]) -> str:
    """Sentence with the mean over undisturbed hosts; empty if no host was disturbed."""
    undisturbed = [record for record in known if (record.get("host_speed") or 1.0) >= SLOW_HOST]
    if not undisturbed or len(undisturbed) == len(known):
        return ""
    return (
        f" Without the {len(known) - len(undisturbed)} on a host that\n"
        f"other processes slowed to less than {SLOW_HOST} of its speed, the mean is {_mean(undisturbed)}."
    )


def moves_markdown(records: Sequence[Record]) -> str:
    """Latency without graph rewrites at single places over latency of the plan, by model and setting."""

    def worth(record: Record, kind: str = "measured_ms") -> float:
        ratio: float = record["modes"][UNMERGED][kind] / record["modes"]["plan"][kind]
        return ratio

    def cell(record: Record) -> str:
        return f"{worth(record):.2f} ({worth(record, 'predicted_ms'):.2f})"

    return _grid(
        [record for record in latest(records) if UNMERGED in record.get("modes", {})],
        cell,
        lambda found: f"{statistics.geometric_mean(map(worth, found)):.2f}",
    )


def _grid(known: Sequence[Record], cell: Callable[[Record], str], mean: Callable[[Sequence[Record]], str]) -> str:
    """Table of models by settings, with a last row of means."""
    settings = list(dict.fromkeys((record["case"][1], record["case"][2]) for record in known))
    models = list(dict.fromkeys(record["case"][0] for record in known))
    by_case = {tuple(record["case"]): record for record in known}
    head = ["model", *(f"batch {batch}, {precision}" for batch, precision in settings)]
    rows = [
        [model, *(cell(by_case[case]) if (case := (model, *setting)) in by_case else "-" for setting in settings)]
        for model in models
    ]
    means = [mean([record for record in known if tuple(record["case"][1:]) == setting]) for setting in settings]
    return markdown_table(head, [*rows, ["*geometric mean*", *means]])


def _oracles(studied: Sequence[Record]) -> str:
    """Geometric means of speedups over eager by setting, measured, and in parentheses predicted."""
    rows = []
    for batch, precision in dict.fromkeys(tuple(record["case"][1:]) for record in studied):
        found = [record for record in studied if tuple(record["case"][1:]) == (batch, precision)]
        bound = statistics.geometric_mean(_predicted_eager(one) / one["theoretical_ms"] for one in found)
        cells = [_speedups([(record, best_mode(record)) for record in found]), f"({bound:.2f})"]
        cells += [_speedups([(record, plan) for record in found]) for plan in ("published", "plan")]
        rows.append([f"batch {batch}, {precision}", str(len(found)), *cells])
    return markdown_table(ORACLES_HEAD, rows)


def _speedups(chosen: Sequence[tuple[Record, str]]) -> str:
    """Geometric means of measured, and in parentheses of predicted, speedups over eager."""
    means = [
        statistics.geometric_mean(
            record["modes"]["eager"][kind] / record["modes"][mode][kind] for record, mode in chosen
        )
        for kind in ("measured_ms", "predicted_ms")
    ]
    return "{:.2f} ({:.2f})".format(*means)


def _predicted_eager(record: Record) -> float:
    milliseconds: float = record["modes"]["eager"]["predicted_ms"]
    return milliseconds


def _cell(record: Record) -> str:
    modes = record["modes"]
    best = best_mode(record)
    predicted = modes[best]["predicted_ms"] / modes["plan"]["predicted_ms"]
    return f"{gain(record):.2f} ({predicted:.2f})"


def _mean(records: Sequence[Record]) -> str:
    return f"{statistics.geometric_mean([value for record in records if (value := gain(record))]):.2f}"


def _errors(records: Sequence[Record]) -> str:
    """Mean relative errors of predicted latencies by mode."""
    rows = []
    for mode in ("eager", "default", "reduce-overhead", "plan"):
        found = [record["modes"][mode] for record in records]
        errors = [abs(one["predicted_ms"] / one["measured_ms"] - 1) for one in found if one["measured_ms"]]
        within = sum(error <= 0.1 for error in errors) / len(errors)
        rows.append([f"`{mode}`", percent(statistics.mean(errors)), f"{100 * within:.0f} %"])
    return markdown_table(("mode", "mean error of predicted latency", "within 10 %"), rows)
