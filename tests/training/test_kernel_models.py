"""Training: what counts as one shape, folds that never share one, intervals that hold, and the baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from collectors.workloads.convolution_space import ConvUnit, unit_graph
from collectors.workloads.convolution_space import sample as sample_units
from collectors.workloads.matmuls import linear_graph
from costmodel.features import Roofline, featurize
from costmodel.ir import parse
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.group_model import UNMEASURED
from costmodel.predictor.network import Array
from costmodel.training.baselines import BASELINES, cross_validate, network_fit, score_group
from costmodel.training.cross_fit import cross_fit
from costmodel.training.folds import by_shape
from costmodel.training.kernel_models import EDGES_US, TrainingSettings, fit_group, interval_widths, limits_by_size
from costmodel.training.roofline_fit import fit_roofline
from costmodel.training.tables import Table, issue_alone_us, shape_group, tabulate, trusted

SMALL = TrainingSettings(hidden=(12,), epochs=30, ensemble=1, trees=20)
UNIT = ConvUnit(8, 32, 48, 14, kernel=3, padding=1, residual=True)


def group_of_unit(unit: ConvUnit, layout: str = "nchw") -> int:
    return shape_group(str(unit_graph(unit, layout, layout)))


@pytest.mark.parametrize("batch", [1, 2, 64, 256])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_batch_precision_and_layout_do_not_make_another_shape(batch: int, dtype: str, layout: str):
    assert group_of_unit(replace(UNIT, batch=batch, dtype=dtype), layout) == group_of_unit(UNIT)


def test_a_linear_layer_of_more_rows_is_the_same_shape():
    one, many = linear_graph(197, 96, 64, "float32", bias=True), linear_graph(32 * 197, 96, 64, "float16", bias=True)
    assert shape_group(str(one)) == shape_group(str(many))


@pytest.mark.parametrize(
    "other",
    [
        replace(UNIT, in_channels=40),
        replace(UNIT, out_channels=40),
        replace(UNIT, size=28),
        replace(UNIT, kernel=5, padding=2),
        replace(UNIT, residual=False),
        replace(UNIT, out_channels=32, groups=32),
    ],
    ids=lambda unit: unit.name,
)
def test_other_sizes_are_other_shapes(other: ConvUnit):
    assert group_of_unit(other) != group_of_unit(UNIT)


def synthetic(rows: int = 400, seed: int = 0, noise: float = 0.1, shapes: int = 80) -> Table:
    """Kernels whose utilisation is a smooth function of three features, and noise."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(rows, 4)).astype(np.float32)
    target = 0.6 * raw[:, 0] - 0.3 * np.abs(raw[:, 1]) + rng.normal(0, noise, rows)
    bound = np.exp(rng.uniform(0, 6, rows))
    names = ("a", "b", "c", "position")
    return Table(names, raw, bound, bound * np.exp(target), rng.integers(0, shapes, rows))


def test_no_shape_is_on_both_sides_of_a_fold():
    table = synthetic()
    seen: list[tuple[set[int], set[int]]] = []
    tested: list[np.ndarray] = []

    def spy(train: Table):
        def predict(test: Table) -> Array:
            seen.append((set(train.shape.tolist()), set(test.shape.tolist())))
            tested.append(test.time_us)
            return test.target

        return predict

    prediction = cross_validate(table, by_shape(table.shape, 5), spy)
    assert len(seen) == 5
    assert all(not trained & held for trained, held in seen)
    assert sorted(np.concatenate(tested)) == sorted(table.time_us)  # every row is tested once
    np.testing.assert_array_equal(prediction, table.target)


def test_half_widths_by_hand():
    # 39 errors of kernels below 4 us: rank ceil(40 x 0.9) / 39 of 0.01 ... 0.39
    error = np.concatenate([np.arange(1, 40) / 100, [0.5] * 5]).astype(np.float32)
    time = np.array([2.0] * 39 + [1000.0] * 5)
    widths = interval_widths(error, time)
    assert len(widths) == len(EDGES_US) + 1
    assert widths[0] == pytest.approx(np.quantile(error[:39], 36 / 39), abs=1e-6)
    # five kernels are too few for a width of their own; so are none: all 44 stand in
    assert widths[1] == widths[-1] == pytest.approx(np.quantile(error, 41 / 44), abs=1e-6)


def test_limits_by_hand():
    # 300 kernels make three bins of 100, parted at 99.67 and 199.33 (numpy interpolates between order statistics)
    size, target = np.arange(300, dtype=np.float32), np.arange(300, dtype=np.float32) / 10
    sizes, limits = limits_by_size(size, target)
    np.testing.assert_allclose(sizes, [99.667, 199.333], atol=1e-3)
    # a bin counts with its neighbours: 0 to 199, all, 100 to 299; 0.3 % are left out at either end
    np.testing.assert_allclose(limits, [[0.0597, 19.8403], [0.0897, 29.8103], [10.0597, 29.8403]], atol=1e-3)


@pytest.mark.parametrize("size", [np.ones(500, np.float32), np.arange(50, dtype=np.float32)], ids=["equal", "few"])
def test_kernels_that_size_does_not_part_share_their_limits(size: Array):
    target = np.linspace(-1, 1, len(size), dtype=np.float32)
    sizes, limits = limits_by_size(size, target)
    np.testing.assert_allclose(limits, np.tile([-0.994, 0.994], (len(sizes) + 1, 1)), atol=1e-5)


def test_what_no_kernel_of_the_size_ever_took_is_not_predicted():
    table = synthetic(600, noise=0.0)
    named = replace(table, names=("log_bound_us", *table.names[1:]))
    model = fit_group(named, SMALL)
    strange = np.array([[0.0, 6.0, 6.0, 6.0], [6.0, 0.0, 0.0, 0.0]], np.float32)
    low, high = model.limits[:, 0].min(), model.limits[:, 1].max()
    networks = np.mean([network.forward(strange) for network in model.networks], axis=0)
    assert ((networks < low) | (networks > high)).any()
    held = model.expected(strange)
    assert ((held >= low) & (held <= high)).all()


def test_nominal_90_percent_intervals_hold_85_to_95_percent():
    table, new = synthetic(900, seed=1), synthetic(900, seed=2)
    held = cross_validate(table, by_shape(table.shape), network_fit(SMALL))
    model = fit_group(table, SMALL, held)
    ratio, _ = model.log_ratio(((new.raw - model.mean) / model.scale).astype(np.float32))
    widths = model.widths[np.searchsorted(model.edges, new.bound_us * np.exp(ratio))]
    assert 0.85 <= float((np.abs(ratio - new.target) <= widths).mean()) <= 0.95


def test_networks_beat_the_constant_and_the_roofline():
    table = synthetic(600)
    errors = {
        name: score_group(table, cross_validate(table, by_shape(table.shape), fit))["mean_error"]
        for name, fit in {"network": network_fit(SMALL), **BASELINES}.items()
        if name != "boosting"
    }
    assert errors["network"] < 0.5 * errors["constant"]
    assert errors["network"] < 0.5 * errors["roofline"]
    assert errors["network"] < errors["neighbour"]


def table_of(target: list[float]) -> Table:
    raw = np.arange(len(target), dtype=np.float32)[:, None]
    return Table(("x",), raw, np.ones(len(target)), np.exp(target), np.arange(len(target)))


@pytest.mark.parametrize(("name", "expected"), [("constant", 2.0), ("roofline", 0.0), ("neighbour", 3.0)])
def test_baselines_by_hand(name: str, expected: float):
    predict = BASELINES[name](table_of([1.0, 2.0, 3.0]))
    new = replace(table_of([0.0]), raw=np.array([[7.0]], np.float32))  # nearest to the last
    assert predict(new) == pytest.approx([expected])


def test_boosting_learns_a_step():
    table = table_of([0.0] * 60 + [1.0] * 60)
    assert BASELINES["boosting"](table)(table) == pytest.approx(table.target, abs=0.05)


def test_scores_by_hand():
    table = Table(("x",), np.zeros((4, 1), np.float32), np.ones(4), np.array([1.0, 10.0, 10.0, 10.0]), np.arange(4))
    score = score_group(table, np.log([1.3, 10.0, 10.4, 10.8]).astype(np.float32))  # 30 %, 0, 4 %, 8 %
    assert score["mean_error"] == pytest.approx(0.105, abs=1e-4)
    assert score["median_error"] == pytest.approx(0.06, abs=1e-4)
    assert (score["within_5"], score["within_10"]) == (0.5, 0.75)
    assert score["large_within_5"] == pytest.approx(2 / 3)
    assert score["large_median_error"] == pytest.approx(0.04, abs=1e-4)


def test_a_group_model_recalls_its_kernels_and_knows_what_is_far():
    table = synthetic(300)
    model = fit_group(table, SMALL)
    x = ((table.raw - model.mean) / model.scale).astype(np.float32)
    ratio, nearest = model.log_ratio(x)
    np.testing.assert_allclose(ratio, table.target, atol=2e-3)
    assert (nearest <= model.far).all()
    assert model.log_ratio(x[:1] + 50)[1] > model.far


def test_a_network_of_each_fold_makes_the_predictor_and_predicts_what_its_fold_left_out():
    tables = {"conv": synthetic(300, seed=3), "gemm": synthetic(240, seed=4)}
    folds = {group: by_shape(table.shape, 4) for group, table in tables.items()}
    fit = cross_fit(tables, folds, Roofline(1.0, {}, 1.0), 7, replace(SMALL, ensemble=2), jobs=1)
    for group, table in tables.items():
        pooled = fit.predictor.groups[group]
        assert len(pooled.networks) == 4  # the first of each fold's two
        assert len(pooled.residual) == len(table.time_us)
        for fold, predictor in fit.by_fold.items():
            learns, tested = folds[group].learns[fold], folds[group].tests == fold
            model = predictor.groups[group]
            assert len(model.networks) == 2
            assert len(model.sample) == learns.sum()
            alone = fit_group(table.take(learns), replace(SMALL, ensemble=2))  # but for how features are scaled
            x = ((table.raw[tested] - pooled.mean) / pooled.scale).astype(np.float32)
            np.testing.assert_allclose(fit.out_of_fold[group][tested], model.log_ratio(x)[0], atol=1e-6)
            own = ((table.raw[tested] - alone.mean) / alone.scale).astype(np.float32)
            assert np.abs(alone.log_ratio(own)[0] - fit.out_of_fold[group][tested]).mean() < 0.1
    assert fit.predictor.multiprocessors == 7


def convolutions(count: int = 60) -> list[Kernel]:
    return [eager_kernels(unit_graph(unit, "nchw", "nchw"))[0] for unit in sample_units(count, seed=5)]


def test_ceilings_are_what_the_fastest_kernels_reached():
    kernels = convolutions()
    truth = Roofline(4e6, {}, 2.0)
    times = [truth.bound_us(kernel) for kernel in kernels]  # bound by traffic alone
    found = fit_roofline(kernels, times)
    assert found.bytes_per_us <= 4e6
    assert found.bytes_per_us >= 2e6
    assert found.floor_us >= 2.0
    assert set(found.peak) <= {f"conv.{dtype}" for dtype in ("float32", "float16", "bfloat16")}


def test_tables_hold_features_by_name_and_small_groups_are_left_out():
    kernels = [*convolutions(40), Kernel("aten", linear_graph(4, 8, 8, "float32", bias=True), ())]
    positions = [0.25, None, *[float("nan")] * 39]
    frame = pd.DataFrame({"device_us_p50": 5.0, "position": positions, "graph": [str(k.graph) for k in kernels]})
    roofline = Roofline(4e6, {"conv.float32": 1e8}, 2.0)
    tables = tabulate(kernels, frame, roofline, 132)
    assert list(tables) == ["conv"]  # one linear layer is no group
    table = tables["conv"]
    named = featurize(kernels[0], roofline, 132, 0.25)
    assert table.names == tuple(named)
    np.testing.assert_allclose(table.raw[0], list(named.values()), rtol=1e-6)
    assert table.raw[1:, table.names.index("position")] == pytest.approx(0.5)  # unknown positions are the middle
    assert table.target[0] == pytest.approx(np.log(5.0 / roofline.bound_us(kernels[0])), rel=1e-5)


def test_only_faultless_measurements_of_single_kernels_are_trained_on():
    frame = pd.DataFrame(
        {
            "key": ["a", "a", "b", "c", "d", "e", "f", "g"],
            "unit": ["", "", "", "", "", "", "u", "u"],
            "way": ["", "", "", "", "", "", "eager", "cudnn"],  # cuDNN runs a whole unit as one kernel
            "status": ["ok", "ok", "noisy", "ok", "ok", "failed", "ok", "ok"],
            "device_us_p50": [1.0, 2.0, 3.0, np.nan, 0.0, 4.0, 5.0, 6.0],
        }
    )
    kept = trusted(frame)
    assert kept["key"].tolist() == ["a", "g"]
    assert kept["device_us_p50"].tolist() == [1.0, 6.0]


VIEWED = """graph _ {
  input %a0: float32[8,4]
  %0 = transpose(self=%a0, dim0=0, dim1=1) : float32[4,8] strided
  %1 = relu(self=%0) : float32[4,8] strided
  return %1
}"""


def test_views_before_a_call_are_taken_off_its_host_time():
    viewed = Kernel("aten", parse(VIEWED), ("1",))
    assert issue_alone_us(viewed, 13.0) == 11.0
    assert issue_alone_us(viewed, 1.0) == 0.5  # no call takes less
    (convolution, *_) = eager_kernels(unit_graph(UNIT, "nchw", "nchw"))
    assert issue_alone_us(convolution, 13.0) == 13.0
    product = Kernel("aten", linear_graph(4, 8, 8, "float32", bias=True), ())
    assert issue_alone_us(product, 13.0) == 11.0  # its weight is transposed


def test_what_is_remembered_has_the_host_times_of_what_was_measured():
    table = table_of([0.5] * 60)
    measured = np.where(np.arange(60) % 2, np.float32(UNMEASURED), np.float32(25.0))
    model = fit_group(replace(table, host_us=measured, hashes=np.arange(60)), SMALL)
    recalled = [model.recall.host_us_at(row) for row in range(len(model.recall.hashes))]
    assert len(recalled) == 60
    np.testing.assert_allclose(np.array(recalled), 25.0, rtol=1e-3)
    assert model.host_trees is not None
    unmeasured = fit_group(table, SMALL)
    assert len(unmeasured.recall.host_us) == 0
    assert unmeasured.host_trees is None
