"""The answer of a report: one headline, one sentence, the line of code to paste, and four figures."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.report.advice import code_to_paste
from costmodel.report.figures import calls_interval, counted, milliseconds, ratio_interval, seconds, times, whole
from costmodel.report.prediction_document import verdict
from costmodel.report.types import EAGER, ModePrediction, Report

LAUNCH_BOUND = 0.9
"""Share of the latency that launching takes from which a call is bound by the host."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure with its heading and a note."""

    title: str
    figure: str
    note: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Advice about a model.

    Attributes:
        tone: `good`, `plain` or `doubtful`.
        headline: the verdict in a few words.
        gain: speedup with its interval; empty where nothing is gained.
        sentence: why.
        code: line to paste; empty where nothing changes.
        tiles: key figures.
    """

    tone: str
    headline: str
    gain: str
    sentence: str
    code: str
    tiles: tuple[Tile, ...]


def answer_of(report: Report) -> Answer:
    """The answer of a report."""
    best = report.modes.get(report.best_mode)
    eager = report.modes.get(EAGER)
    gains = best is not None and report.best_mode != EAGER and report.verdict != "leave"
    _, _, reason = verdict(report).partition(": ")
    tone = {"compile": "good", "leave": "plain"}.get(report.verdict, "doubtful")
    sentence = reason if reason.startswith("torch.compile") else reason[:1].upper() + reason[1:]
    if report.verdict == "compile" and eager and best:
        sentence = _why(report.best_mode, eager, best)
    return Answer(
        tone=tone,
        headline=_headline(report),
        gain=_gain(best) if gains and best else "",
        sentence=sentence + ("" if sentence.endswith((".", "!", "?")) else "."),
        code=code_to_paste(report) if gains else "",
        tiles=_tiles(report, eager, best) if eager and best else (),
    )


def _headline(report: Report) -> str:
    if report.too_large:
        return f"Too large for {report.hardware}."
    if report.verdict == "compile":
        return f"Compile it with {report.best_mode}." if report.best_mode != "default" else "Compile it."
    if report.verdict == "leave":
        return "Leave it as it is."
    return f"Uncertain, more likely {report.leaning}." if report.leaning else "Uncertain."


def _gain(best: ModePrediction) -> str:
    bounds = ratio_interval((best.speedup_low, best.speedup_high)).replace("-", "–")
    return f"{times(best.speedup).replace('x', '×')} as fast as eager" + (f", {bounds}× at 90 %" if bounds else "")


def _why(mode: str, eager: ModePrediction, best: ModePrediction) -> str:
    """Where the gain comes from."""
    work = f"its work from {milliseconds(eager.device_ms)} to {milliseconds(best.device_ms)} ms"
    busy = min(eager.device_ms / eager.latency_ms, 1.0)
    if is_launch_bound(eager):
        cause = f"In eager mode the GPU works {busy:.0%} of a call and waits for the CPU to launch kernels"
        if mode == "reduce-overhead":
            return f"{cause}. A CUDA graph replays them with one launch, and fused kernels cut {work}"
        return f"{cause}. Fused kernels need fewer launches and cut {work}"
    return f"The GPU is busy {busy:.0%} of an eager call; fused kernels cut {work}"


def is_launch_bound(mode: ModePrediction) -> bool:
    """Whether launching kernels takes about the whole call, and longer than running them."""
    return mode.host_ms >= LAUNCH_BOUND * mode.latency_ms and mode.host_ms > mode.device_ms


def _tiles(report: Report, eager: ModePrediction, best: ModePrediction) -> tuple[Tile, ...]:
    was = f"eager {milliseconds(eager.latency_ms)} ms" if best is not eager else "eager, the fastest mode"
    rate, before = (1e3 * report.batch_size / mode.latency_ms for mode in (best, eager))
    slower = f"eager {whole(before)}/s" if best is not eager else f"batch {report.batch_size}"
    tiles = [
        Tile("Latency", f"{milliseconds(best.latency_ms)} ms", was),
        Tile("Throughput", f"{whole(rate)}/s", f"images; {slower}"),
    ]
    if best.compile_s is not None:
        paid = counted(best.break_even_calls, "call") if best.break_even_calls is not None else "never"
        bounds = calls_interval((best.break_even_low, best.break_even_high)).replace("-", "–")
        note = f"{bounds}; " if bounds else ""
        tiles.append(Tile("Break-even", paid, f"{note}compiling takes {seconds(best.compile_s)} s"))
    tiles.append(Tile("Eager is bound by", *_bound(eager)))
    return tuple(tiles)


def _bound(mode: ModePrediction) -> tuple[str, str]:
    """Bound of a call, and the share that says so."""
    busy = min(mode.device_ms / mode.latency_ms, 1.0)
    if is_launch_bound(mode):
        return "CPU launches", f"the GPU works {busy:.0%} of a call"
    return "the GPU", f"busy {busy:.0%} of a call"
