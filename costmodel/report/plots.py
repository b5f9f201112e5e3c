"""Figures of a report, by Matplotlib, which is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import MissingPackageError, RequestError
from costmodel.report.escape import terminal
from costmodel.report.figures import milliseconds, times
from costmodel.report.kernel_prediction import COMPUTE, LAUNCH, MEMORY
from costmodel.report.tree_rows import tree_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from costmodel.report import KernelPrediction, Report

_HOST, _DEVICE, _EAGER, _COMPILED = "#8c959f", "#2f6feb", "#8c959f", "#2f6feb"
_BOUNDS = {COMPUTE: "#bc4c00", MEMORY: "#2f6feb", LAUNCH: "#8c959f"}
_LONGEST = 40
"""Characters of a name on an axis."""
MODULES = 30
"""Bars of modules that `layers` draws by default."""


class Plots:
    """Figures of a report. Each method returns a new `matplotlib.figure.Figure`.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    @checked(mode=checks.optional(checks.text))
    def timeline(self, mode: str | None = None) -> Figure:
        """Kernels on host and device over a call, a row a mode.

        Args:
            mode: the only mode to draw; None for all.

        Raises:
            RequestError: no kernels of that mode were predicted.
        """
        chosen = self._kernels(mode)
        figure = _figure(9.0, 1.0 + 0.9 * len(chosen))
        axes = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (name, kernels) in zip(axes, chosen.items(), strict=True):
            host = [(kernel.host_start_us / 1e3, kernel.host_us / 1e3) for kernel in kernels if kernel.host_us]
            device = [(kernel.device_start_us / 1e3, kernel.device_us / 1e3) for kernel in kernels]
            axis.broken_barh(host, (1.1, 0.8), facecolors=_HOST)
            axis.broken_barh(device, (0.1, 0.8), facecolors=_DEVICE)
            axis.set_yticks([0.5, 1.5], ["device", "host"])
            axis.set_title(f"{name}: {milliseconds(self._report.modes[name].latency_ms)} ms", loc="left", fontsize=9)
        axes[-1].set_xlabel("ms from the start of the call")
        figure.suptitle(self._title())
        return figure

    @checked(mode=checks.optional(checks.text))
    def roofline(self, mode: str | None = None) -> Figure:
        """Achieved arithmetic of each kernel against its intensity, coloured by what bounds it.

        Args:
            mode: the mode whose kernels are drawn; None for the fastest.

        Raises:
            RequestError: no kernels of that mode were predicted.
        """
        ((name, kernels),) = self._kernels(mode or self._report.best_mode).items()
        figure = _figure(7.0, 4.5)
        axis = figure.subplots()
        for bound, color in _BOUNDS.items():
            points = [kernel for kernel in kernels if kernel.bound == bound and kernel.flops and kernel.bytes]
            x = [kernel.flops / kernel.bytes for kernel in points]
            y = [kernel.flops / kernel.device_us / 1e6 for kernel in points]
            size = [max(8.0, kernel.device_us) for kernel in points]
            axis.scatter(x, y, size, color, label=bound, alpha=0.6)
        axis.set(xscale="log", yscale="log", xlabel="FLOPs a byte", ylabel="TFLOP/s")
        axis.legend(title="bound")
        axis.set_title(f"{self._title()}: kernels of {name}")
        return figure

    @checked(top=checks.count)
    def layers(self, top: int = MODULES) -> Figure:
        """Eager and compiled device time of the modules of most time.

        Args:
            top: number of modules.
        """
        rows = [row for row in tree_rows(self._report.tree(), None, "time", top) if row.last and not row.others]
        figure = _figure(8.0, 1.2 + 0.28 * len(rows))
        axis = figure.subplots()
        _bars(axis, [row.node.eager_us for row in rows], 0.2, _EAGER, "eager")
        _bars(axis, [row.node.compiled_us for row in rows], -0.2, _COMPILED, "compiled")
        names = [
            (
                "  " * (len(row.last) - 1)
                + _short(row.node.label)
                + (f" x{row.node.count}" if row.node.count > 1 else "")
            )
            for row in rows
        ]
        axis.set_yticks([-place for place in range(len(rows))], [_literal(name) for name in names])
        for place, row in enumerate(rows):
            longest = max(row.node.eager_us, row.node.compiled_us)
            axis.text(longest, -place, f" {times(row.node.speedup)}", va="center", fontsize=8)
        axis.set_xlabel("device time, us")
        axis.legend()
        axis.set_title(self._title())
        return figure

    def _kernels(self, mode: str | None) -> dict[str, tuple[KernelPrediction, ...]]:
        """Kernels of one mode, or of every mode."""
        known = {name: kernels for name, kernels in self._report.kernels.items() if kernels}
        if mode is not None and mode in known:
            return {mode: known[mode]}
        if mode is not None or not known:
            raise RequestError(
                f"the report has no kernels of {mode or 'any mode'}; there are: {', '.join(known) or '-'}"
            )
        return known

    def _title(self) -> str:
        return _literal(f"{_short(self._report.model)} on {_short(self._report.hardware)}")


def _bars(axis: Axes, us: list[float], shift: float, color: str, label: str) -> None:
    axis.barh([shift - place for place in range(len(us))], us, 0.38, color=color, label=label)


def _short(name: str) -> str:
    shown = terminal(name)
    half = _LONGEST // 2
    return shown if len(shown) <= _LONGEST else f"{shown[: half - 2]}...{shown[-half + 2 :]}"


def _literal(text: str) -> str:
    """Text in which a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def _figure(width: float, height: float) -> Figure:
    """An empty figure that notebooks display and no window keeps open; inches."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingPackageError("plots need Matplotlib; install it by: pip install 'costmodel[plot]'") from error
    made: Any = pyplot.figure(figsize=(width, height), layout="constrained")
    pyplot.close(made)
    figure: Figure = made
    return figure
