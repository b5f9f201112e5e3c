"""Figures of a report, read back from Matplotlib's objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from costmodel.errors import CostmodelError, RequestError
from costmodel.report import KernelPrediction, Report
from tests.support.sample_trees import network

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def without_windows() -> Iterator[None]:
    with matplotlib.rc_context({"backend": "agg"}):
        yield


def kernel(start_us: float, us: float, bound: str, host_us: float = 2.0) -> KernelPrediction:
    return KernelPrediction(
        name="conv2d",
        layers=("stem.conv",),
        backend="aten",
        flops=4_000_000,
        bytes=2_000_000,
        host_start_us=start_us - 1.0,
        host_us=host_us,
        device_start_us=start_us,
        device_us=us,
        low_us=us / 2,
        high_us=us * 2,
        bound=bound,
        extrapolated=False,
    )


def report() -> Report:
    eager = (kernel(10.0, 20.0, "compute"), kernel(30.0, 10.0, "memory"))
    graphs = (kernel(5.0, 10.0, "compute"), kernel(15.0, 5.0, "launch", host_us=0.0))
    return replace(network(), kernels={"eager": eager, "reduce-overhead": graphs})


def test_a_timeline_has_a_row_a_mode() -> None:
    axes = report().plot.timeline().axes
    assert [axis.get_title("left") for axis in axes] == ["eager: 6.000 ms", "reduce-overhead: 2.000 ms"]
    host, device = axes[1].collections
    assert [path.get_extents().x0 for path in device.get_paths()] == pytest.approx([0.005, 0.015])
    assert [path.get_extents().width for path in device.get_paths()] == pytest.approx([0.010, 0.005])
    assert len(host.get_paths()) == 1  # the second kernel is replayed


def test_a_roofline_has_a_point_a_kernel() -> None:
    (axis,) = report().plot.roofline("eager").axes
    points = [tuple(point) for drawn in axis.collections for point in drawn.get_offsets()]
    # 4 MFLOP over 2 MB, in 20 and 10 us
    assert points == [pytest.approx((2.0, 0.2)), pytest.approx((2.0, 0.4))]
    (axis,) = report().plot.roofline().axes
    assert axis.get_title() == "tiny on some-gpu: kernels of reduce-overhead"


def test_layers_have_two_bars_a_module() -> None:
    (axis,) = report().plot.layers(top=4).axes
    eager, compiled = axis.containers
    assert [bar.get_width() for bar in eager] == [102.0, 40.0, 16.0, 5.0]  # blocks, stem, mixer, head
    assert [bar.get_width() for bar in compiled] == [69.0, 20.0, 12.0, 4.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "blocks.0..2 x3"[:6],
        "stem.conv",
        "mixer",
        "head",
    ]


def test_names_are_no_formulas() -> None:
    figure = replace(report(), model="$a$ \x1b").plot.layers()
    figure.canvas.draw()
    assert figure.axes[0].get_title() == r"\$a\$ \x1b on some-gpu"


def test_no_figure_stays_open() -> None:
    report().plot.timeline()
    assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_an_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="no kernels of fast; there are: eager, reduce-overhead"):
        report().plot.timeline("fast")
    with pytest.raises(RequestError, match="no kernels of any mode"):
        network().plot.timeline()


def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CostmodelError, match=r"pip install 'costmodel\[plot\]'"):
        report().plot.layers()
