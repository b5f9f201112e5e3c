"""Plans beside torch.compile's modes, as measured by scripts/measure_and_compare.py: docs/plans.md's tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markdown_tables import markdown_table, percent

BEGIN, END = "<!-- plans: made by scripts/measure_and_compare.py -->", "<!-- end of plans -->"
OTHER_BEGIN, OTHER_END = "<!-- other machine: made by scripts/accuracy.py -->", "<!-- end of other machine -->"
MOVES_BEGIN, MOVES_END = "<!-- moves: made by scripts/measure_and_compare.py -->", "<!-- end of moves -->"
OTHERS_BEGIN, OTHERS_END = "<!-- others: made by scripts/measure_and_compare.py -->", "<!-- end of others -->"
ORACLES_TEXT = (
    "The study's oracles beside ours: speedups over eager, measured, and in parentheses predicted. *Theoretical* is\n"
    "the sum of each block's fastest way: a bound for blocks that run one after the other and fuse with none, which\n"
    "plans with branches side by side and with fusion across blocks pass. Best of two runs and the published dynamic\n"
    "program choose the same, each block's fastest way, as neither counts what switching costs; here they are carried\n"
    "out in one CUDA graph:"
)
ORACLES_HEAD = ("model, batch, precision", "best mode", "theoretical", "published, carried out", "our plan")
OTHER_HEAD = ("mode", "batch", "cases", "machines differ", "error, first machine", "error, second machine")
MODELS = (
    *("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1"),
    *("vgg16_bn", "resnet18", "efficientnet_b0", "convnext_tiny", "vit_b_16", "inception_v3"),
)
"""The six models of the study, and six more."""
UNSEARCHED, UNFORKED, UNMERGED = "unsearched", "unforked", "unmerged"
"""Our plan with cuDNN's own choice of algorithms; on one stream; without moves on branches: what each is worth."""
BEFORE = "before"
"""The plan of another version, measured beside ours."""
MODES = ("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

SLOW_HOST = 0.7
"""A host below that part of the usual speed is disturbed by others; modes wait for it where a plan does not."""

Record = Mapping[str, Any]
"""One case: `case` (model, batch size, precision), `modes` as in `Validation`, or `error`."""


def best_mode(record: Record) -> str:
    """The fastest way that a user of torch.compile could pick, eager execution included, as measured."""
    measured: dict[str, float] = {name: mode["measured_ms"] for name, mode in record["modes"].items() if name in MODES}
    return min((name for name, ms in measured.items() if ms), key=measured.__getitem__)


def gain(record: Record, way: str = "plan") -> float | None:
    """Measured latency of the best mode over that of a plan; None where it was not measured."""
    planned = record.get("modes", {}).get(way, {}).get("measured_ms")
    return record["modes"][best_mode(record)]["measured_ms"] / planned if planned else None


def latest(records: Sequence[Record]) -> list[Record]:
    """Of each case the record that was measured last, in the order in which cases were first measured."""
    return list({tuple(record["case"]): record for record in records}.values())


def lines(records: Sequence[Record]) -> list[str]:
    """A line a record, and one on all of them."""
    found = [_line(record) for record in records]
    gains = [value for record in records if (value := gain(record))]
    if gains:
        mean = statistics.geometric_mean(gains)
        found.append(f"{len(gains)} cases: geometric mean gain {mean:.3f}, least {min(gains):.3f}")
    return found


def _line(record: Record) -> str:
    name = "{}@{} {}".format(*record["case"])
    value = gain(record)
    if value is None:
        return f"{name}: {record.get('error') or record['modes']['plan']['note']}"
    modes, best = record["modes"], best_mode(record)
    ways = [
        f"{way} {mode['measured_ms']:.3f} ms" + (f" ({mode['predicted_ms']:.3f})" if mode["predicted_ms"] else "")
        for way, mode in modes.items()
        if mode["measured_ms"]
    ]
    replaced = f", replaced: {' '.join(record['replaced'])}" if record["replaced"] else ""
    return f"{name}: {', '.join(ways)}; gain over {best} {value:.3f}{replaced}"


def comparison_markdown(records: Sequence[Record]) -> str:
    """What the plans gained over the best mode, by model and setting, and how well that was predicted.

    Of a case that was measured more than once, the last measurement counts; in the table of oracles the last one with
    the study's.
    """
    usable = [record for record in records if gain(record)]
    known = latest(usable)
    gains = [value for record in known if (value := gain(record))]
    device = known[0]["device"] if known else "no device"
    text = (
        f"Latency of the best of eager, `default` and `reduce-overhead` over that of the plan, measured in turn in\n"
        f"one process on an {device}, inputs nchw; in parentheses as predicted beforehand. {len(gains)} cases:\n"
        f"geometric mean {statistics.geometric_mean(gains):.2f}, least {min(gains):.2f}."
        f"{_on_quiet_hosts(known)}{_since_before(known)}"
    )
    also = "Latencies as predicted before, by a profile that had seen kernels of these models and others:"
    parts = [text, _grid(known, _cell, _mean), also, _errors(known)]
    if studied := latest([one for one in usable if gain(one, "published") and "theoretical_ms" in one]):
        parts += [ORACLES_TEXT, markdown_table(ORACLES_HEAD, [_oracles(record) for record in studied])]
    return "\n\n".join(parts)


def _since_before(known: Sequence[Record]) -> str:
    """What plans have gained on those of another version, where these were measured beside them; else nothing."""
    both = [record["modes"] for record in known if gain(record, BEFORE)]
    ratios = [modes[BEFORE]["measured_ms"] / modes["plan"]["measured_ms"] for modes in both]
    if not ratios:
        return ""
    faster = sum(ratio > 1 for ratio in ratios)
    return (
        f" In {len(ratios)} cases the plan of an earlier version was measured\n"
        f"beside it: {faster} are faster now, all by {statistics.geometric_mean(ratios):.2f} in the geometric mean."
    )


def others_markdown(records: Sequence[Record]) -> str:
    """What plans of models beside `MODELS` gained over the best mode, by model and setting."""
    known = [record for record in latest(records) if gain(record)]
    least = min(value for record in known if (value := gain(record)))
    said = f"{len(known)} cases: geometric mean {_mean(known)}, least {least:.2f}.{_on_quiet_hosts(known)}"
    return f"{said}\n\n{_grid(known, _cell, _mean)}"


def _on_quiet_hosts(known: Sequence[Record]) -> str:
    """What is left of the mean where nothing disturbed the host; nothing where nothing did anywhere."""
    quiet = [record for record in known if (record.get("host_speed") or 1.0) >= SLOW_HOST]
    if not quiet or len(quiet) == len(known):
        return ""
    return (
        f" Without the {len(known) - len(quiet)} that were measured while the host\n"
        f"took over {1 / SLOW_HOST:.1f} times as long as usual to issue kernels the mean is {_mean(quiet)}."
    )


def moves_markdown(records: Sequence[Record]) -> str:
    """What moves on single places are worth, by model and setting: a plan without them over our plan, measured."""

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
    """A table of models by settings, and a last row of means."""
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


def _oracles(record: Record) -> list[str]:
    """Speedups over eager of the study's oracles and of ours, as measured, and in parentheses as predicted."""
    modes, (model, batch, precision) = record["modes"], record["case"]
    eager = modes["eager"]

    def speedup(way: str) -> str:
        predicted = eager["predicted_ms"] / modes[way]["predicted_ms"]
        return f"{eager['measured_ms'] / modes[way]['measured_ms']:.2f} ({predicted:.2f})"

    bound = f"({eager['predicted_ms'] / record['theoretical_ms']:.2f})"
    return [f"{model}, {batch}, {precision}", speedup(best_mode(record)), bound, speedup("published"), speedup("plan")]


def _cell(record: Record) -> str:
    modes = record["modes"]
    best = best_mode(record)
    predicted = modes[best]["predicted_ms"] / modes["plan"]["predicted_ms"]
    return f"{gain(record):.2f} ({predicted:.2f})"


def _mean(records: Sequence[Record]) -> str:
    return f"{statistics.geometric_mean([value for record in records if (value := gain(record))]):.2f}"


def _errors(records: Sequence[Record]) -> str:
    """Mean relative errors of predicted latencies, the models in question being among those trained on."""
    rows = []
    for way in ("eager", "default", "reduce-overhead", "plan"):
        found = [record["modes"][way] for record in records]
        errors = [abs(mode["predicted_ms"] / mode["measured_ms"] - 1) for mode in found if mode["measured_ms"]]
        within = sum(error <= 0.1 for error in errors) / len(errors)
        rows.append([f"`{way}`", percent(statistics.mean(errors)), f"{100 * within:.0f} %"])
    return markdown_table(("way", "mean error of predicted latency", "within 10 %"), rows)


def other_machine_markdown(records: Sequence[Record], validation: Sequence[Mapping[str, str]]) -> str:
    """How far two machines of one kind agree, and how far the prediction is off on the one it was not trained on.

    Args:
        records: of the comparison, measured on the second machine.
        validation: rows of the profile's `validation.csv`: measured on the first, and predicted with families left out.
    """
    on_first = [row for row in validation if row["environment"] == "0"]
    first = {(row["model"], int(row["batch_size"]), row["precision"]): row for row in on_first}
    rows = []
    for mode in ("default", "reduce-overhead"):
        for batch in sorted({record["case"][1] for record in records}):
            found = []
            for record in latest(records):
                row = first.get(tuple(record["case"]), {})
                here = row.get(f"measured_speedup/{mode}")
                if record["case"][1] == batch and here and "modes" in record:
                    there = record["modes"]["eager"]["measured_ms"] / record["modes"][mode]["measured_ms"]
                    told, untold = (float(row[f"{name}/{mode}"]) for name in ("probed_speedup", "speedup"))
                    ratios = (float(here) / there, told / float(here), untold / there)
                    found.append([abs(ratio - 1) for ratio in ratios])
            means = [percent(statistics.mean(column)) for column in zip(*found, strict=True)]
            rows.append([f"`{mode}`", str(batch), str(len(found)), *means])
    return markdown_table(OTHER_HEAD, rows)
