"""Two sets of reports -> the changes of each case: modes of the whole model, and layers by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costmodel.comparison.change import FASTER, SAME, SLOWER, UNCERTAIN, Bounded, Change, Sharing, change_of
from costmodel.errors import RequestError
from costmodel.report.types import EAGER, LayerPrediction, ModePrediction, Report

Key = tuple[str, str, int, str, str]
"""Model, hardware, batch size, precision and settings of torch: reports of two lists with the same key are compared."""


@dataclass(frozen=True, slots=True)
class ModeChange:
    """Changes of the whole model in one mode; `speedup` is None for eager execution."""

    mode: str
    latency: Change
    speedup: Change | None


@dataclass(frozen=True, slots=True)
class LayerChange:
    """Changes of a layer's device time, eager and compiled; None where a report lacks it."""

    name: str
    kind: str
    eager: Change | None
    compiled: Change | None

    @property
    def decisive(self) -> Change | None:
        """The change in compiled mode, or in eager mode for a layer that is never compiled."""
        return self.compiled or self.eager

    @property
    def verdict(self) -> str:
        """Verdict of the decisive change."""
        return UNCERTAIN if self.decisive is None else self.decisive.verdict


@dataclass(frozen=True, slots=True)
class CaseChange:
    """Changes of one case.

    Attributes:
        before, after: the two reports; each has at least one mode.
        best_before, best_after: the mode of lowest latency in each.
        best: change of the latency in these modes.
        modes: modes that both have.
        layers: layers that both have, in the order of `before`.
        modes_only_before, modes_only_after: modes that only one report has.
        layers_only_before, layers_only_after: names of layers that only one report has.
    """

    before: Report
    after: Report
    best_before: str
    best_after: str
    best: Change
    modes: tuple[ModeChange, ...]
    layers: tuple[LayerChange, ...]
    modes_only_before: tuple[str, ...]
    modes_only_after: tuple[str, ...]
    layers_only_before: tuple[str, ...]
    layers_only_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Changes of all cases; `only_before` and `only_after` name the cases without a counterpart."""

    cases: tuple[CaseChange, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    def regressions(self, percent: float) -> tuple[str, ...]:
        """Regressions, a line each.

        A mode regresses if its predicted latency is longer, or its predicted speedup lower, by more than `percent`, and
        the whole 90 % interval of the ratio lies on that side of 1. A case or mode that only the first reports have
        regresses too: a model that is no longer compiled, or fails, must not pass.
        """
        lines = [f"{name}: missing in the second file" for name in self.only_before]
        for case in self.cases:
            lines += [f"{name_of(case.before)}: no prediction for {mode}" for mode in case.modes_only_before]
            lines += [f"{name_of(case.before)}: {text}" for mode in case.modes for text in _regressions(mode, percent)]
        return tuple(lines)


def compare_reports(before: Sequence[Report], after: Sequence[Report]) -> Comparison:
    """Compare reports with the same model, hardware, batch size, precision and settings of torch.

    Two single reports need only the same settings.

    Raises:
        RequestError: reports of one side have the same key, or no report has a counterpart.
    """
    if len(before) == len(after) == 1:
        _refuse_other_settings(before[0], after[0])
        return Comparison((_case(before[0], after[0]),))
    first, second = _by_key(before), _by_key(after)
    shared = [key for key in first if key in second]
    if not shared:
        for report in before:
            for other in after:
                if _key_of(report)[:-1] == _key_of(other)[:-1]:
                    _refuse_other_settings(report, other)
        known = f"{name_of(before[0])} and {name_of(after[0])}" if before and after else "an empty list"
        raise RequestError(f"no model, hardware, batch size and precision is in both files: {known}")
    return Comparison(
        tuple(_case(first[key], second[key]) for key in shared),
        tuple(name_of(report) for key, report in first.items() if key not in second),
        tuple(name_of(report) for key, report in second.items() if key not in first),
    )


def name_of(report: Report) -> str:
    """Name of a case."""
    settings = f", {report.arithmetic}" if report.arithmetic else ""
    return f"{report.model} on {report.hardware}, batch {report.batch_size}, {report.precision}{settings}"


def _refuse_other_settings(before: Report, after: Report) -> None:
    """Refuse to compare what runs under different settings of torch.

    Raises:
        RequestError: names both settings.
    """
    if before.arithmetic != after.arithmetic:
        first, second = (report.arithmetic or "torch's default settings" for report in (before, after))
        raise RequestError(
            f"{before.model} is predicted for {first} in the first file, and for {second} in the second; give both the "
            "same --amp, --matmul-precision and --cudnn-benchmark"
        )


def _key_of(report: Report) -> Key:
    return report.model, report.hardware, report.batch_size, report.precision, report.arithmetic


def _by_key(reports: Sequence[Report]) -> dict[Key, Report]:
    found: dict[Key, Report] = {}
    for report in reports:
        key = _key_of(report)
        if key in found:
            raise RequestError(f"two reports of {name_of(report)} in one file; keep one of them")
        found[key] = report
    return found


def _case(before: Report, after: Report) -> CaseChange:
    layers, only_before, only_after = _layers(before, after)
    best = _fastest(before), _fastest(after)
    latencies = _latency(before.modes[best[0]]), _latency(after.modes[best[1]])
    return CaseChange(
        before=before,
        after=after,
        best_before=best[0],
        best_after=best[1],
        best=change_of(*latencies, _sharing(before, after, *best)),
        modes=tuple(_mode(mode, before, after) for mode in before.modes if mode in after.modes),
        layers=layers,
        modes_only_before=tuple(mode for mode in before.modes if mode not in after.modes),
        modes_only_after=tuple(mode for mode in after.modes if mode not in before.modes),
        layers_only_before=only_before,
        layers_only_after=only_after,
    )


def _fastest(report: Report) -> str:
    return min(report.modes, key=lambda mode: report.modes[mode].latency_ms)


def _mode(mode: str, before: Report, after: Report) -> ModeChange:
    old, new = before.modes[mode], after.modes[mode]
    sharing = _sharing(before, after, mode, mode)
    latency = change_of(_latency(old), _latency(new), sharing)
    gain, new_gain = _speedup(old), _speedup(new)
    if gain is None or new_gain is None:
        return ModeChange(mode, latency, None)
    return ModeChange(mode, latency, change_of(gain, new_gain, sharing, less_is_faster=False))


def _sharing(before: Report, after: Report, old: str, new: str) -> Sharing:
    """Causes of error that one report's latency in mode `old` and the other's in mode `new` have in common."""
    hosts = [(report.host, report.host_speed, report.assumed_host) for report in (before, after)]
    field = "eager_us" if old == EAGER else "compiled_us"
    times = before.modes[old].latency_ms, after.modes[new].latency_ms
    closeness = min(times) / max(times)
    unchanged = min(_unchanged_share(before.layers, after.layers, field), closeness) if old == new else 0.0
    return Sharing(before.hardware == after.hardware, hosts[0] == hosts[1], unchanged)


def _latency(mode: ModePrediction) -> Bounded:
    return Bounded(mode.latency_ms, mode.low_ms, mode.high_ms)


def _speedup(mode: ModePrediction) -> Bounded | None:
    if not mode.speedup or not mode.speedup_low or not mode.speedup_high:
        return None
    return Bounded(mode.speedup, mode.speedup_low, mode.speedup_high)


def _numbered(layers: Sequence[LayerPrediction]) -> dict[tuple[str, int], LayerPrediction]:
    """Layers by name and number among those of the name: a module called twice has two."""
    seen: Counter[str] = Counter()
    found = {}
    for layer in layers:
        found[layer.name, seen[layer.name]] = layer
        seen[layer.name] += 1
    return found


def _unchanged_share(before: Sequence[LayerPrediction], after: Sequence[LayerPrediction], field: str) -> float:
    """Share of the time, of the slower report, in layers whose name, operators and time are the same in both."""
    old, new = _numbered(before), _numbered(after)
    times = [{key: getattr(layer, field) or 0.0 for key, layer in side.items()} for side in (old, new)]
    total = max(sum(side.values()) for side in times)
    unchanged = sum(us for key, us in times[0].items() if us == times[1].get(key) and old[key].ops == new[key].ops)
    return unchanged / total if total else 0.0


def _layers(before: Report, after: Report) -> tuple[tuple[LayerChange, ...], tuple[str, ...], tuple[str, ...]]:
    old, new = _numbered(before.layers), _numbered(after.layers)
    profile = before.hardware == after.hardware
    changes = []
    for key, layer in old.items():
        if key in new:
            eager, compiled = (_layer_change(layer, new[key], field, profile) for field in ("eager_us", "compiled_us"))
            changes.append(LayerChange(layer.name, new[key].kind, eager, compiled))
    only_before = tuple(name for name, number in old if (name, number) not in new)
    only_after = tuple(name for name, number in new if (name, number) not in old)
    return tuple(changes), only_before, only_after


def _layer_change(before: LayerPrediction, after: LayerPrediction, field: str, profile: bool) -> Change | None:
    """Change of a layer's time, whose interval is as wide as that of the layer's speedup: the only one in a report."""
    old, new = _layer_time(before, field), _layer_time(after, field)
    if old is None or new is None:
        return None
    unchanged = float(profile and old.value == new.value and before.ops == after.ops)
    return change_of(old, new, Sharing(profile, host=True, unchanged=unchanged))


def _layer_time(layer: LayerPrediction, field: str) -> Bounded | None:
    us = getattr(layer, field)
    if not us or not layer.speedup or not layer.speedup_low or not layer.speedup_high:
        return None
    return Bounded(us, us * layer.speedup_low / layer.speedup, us * layer.speedup_high / layer.speedup)


def _regressions(mode: ModeChange, percent: float) -> Iterator[str]:
    latency, speedup = mode.latency, mode.speedup
    if 100.0 * (latency.ratio - 1.0) > percent and latency.ratio_low > 1.0:
        yield f"{mode.mode} latency {latency.ratio - 1.0:+.1%}{_between(latency)}"
    if speedup is not None and 100.0 * (1.0 - speedup.ratio) > percent and speedup.ratio_high < 1.0:
        yield f"{mode.mode} speedup {speedup.ratio - 1.0:+.1%}{_between(speedup)}"


def _between(change: Change) -> str:
    return f" (90 % interval {change.ratio_low - 1.0:+.1%} to {change.ratio_high - 1.0:+.1%})"


def counts(layers: Sequence[LayerChange]) -> dict[str, int]:
    """Number of layers by verdict, in the order of the verdicts."""
    found = Counter(layer.verdict for layer in layers)
    return {verdict: found[verdict] for verdict in (FASTER, SLOWER, SAME, UNCERTAIN) if found[verdict]}
