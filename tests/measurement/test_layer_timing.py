"""Layers measured in a running model: operators aligned by hand, and a model with very different layers."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.errors import MeasurementError
from costmodel.measurement.layer_timing import (
    FUSED,
    _device_us,
    calls_of,
    compiled_calls,
    divided,
    match,
    measure_regions,
    profiled,
    share_out,
)
from costmodel.measurement.validation_report import LayerResult, render_validation, validation_document
from costmodel.planning.plan import Region
from tests.execution.test_planned_module import plan_for


class Uneven(nn.Module):
    """A large matmul and a small one, with views and an addition between them."""

    def __init__(self):
        super().__init__()
        self.large, self.small = nn.Linear(512, 512), nn.Linear(8, 8)

    def forward(self, x):
        x = torch.relu(self.large(x))
        return self.small((x + 1).view(-1, 8)).flatten()


NET, X = Uneven().eval(), torch.randn(1024, 512)


@pytest.fixture
def one_thread():
    """Without threads that wait for one another, the longest operator is the longest on a busy machine, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_the_captured_calls_are_those_that_a_pass_makes():
    captured = calls_of(capture(NET, (X,)))
    made, us = profiled(NET, (X,))
    assert list(captured.values()) == made
    assert made == [("large", (1024, 512)), ("", (1024, 512)), ("", (1024, 512)), ("small", (65536, 8))]
    assert all(took > 0 for took in us)
    assert max(us) == us[0]  # 268 million multiplications
    assert not nn.modules.module._global_forward_hooks


def test_calls_are_aligned_in_order():
    captured = {"0": ("a", (1,)), "1": ("b", (2,)), "2": ("b", (2,)), "3": ("c", (3,))}
    made = [("a", (1,)), ("x", (9,)), ("b", (2,)), ("b", (2,)), ("c", (4,))]
    assert match(captured, made, [1.0, 2.0, 3.0, 4.0, 5.0]) == {"0": 1.0, "1": 3.0, "2": 4.0}


@given(st.lists(st.sampled_from("abc"), max_size=8), st.data())
def test_operators_that_only_the_pass_makes_cost_no_partner(names, data):
    captured = {str(i): (name, (i,)) for i, name in enumerate(names)}
    made, us = [], []
    for i, call in enumerate(captured.values()):
        for _ in range(data.draw(st.integers(0, 2))):
            made.append(("extra", ()))
            us.append(-1.0)
        made.append(call)
        us.append(float(i))
    assert match(captured, made, us) == {str(i): float(i) for i in range(len(names))}


def test_the_profilers_own_buffer_has_no_kernels():
    """As PyTorch 2.11 reports the first convolution of a pass on an H200."""

    def event(number, *us, calls=()):
        launched = [SimpleNamespace(name="kernel", duration=took) for took in us]
        return SimpleNamespace(id=number, kernels=launched, cpu_children=calls)

    buffer, launches = event(1543, 19.25, 49.0), [event(3965), event(3969)]
    library = event(1543, 19.25, 49.0, calls=[buffer, *launches])
    assert _device_us(event(1540, calls=[event(1541, calls=[event(1542, calls=[library])])])) == 68.25
    assert _device_us(event(1550, 2.0, calls=[event(1551, 1.0)])) == 3.0


@pytest.fixture(scope="module")
def result():
    return costmodel.validate(NET, (X,), hardware="amd-epyc-2-threads", modes=(), seconds=0.001, layers=True)


def test_every_layer_is_predicted_and_measured(result):
    names = [layer.name for layer in costmodel.predict(NET, (X,), hardware="amd-epyc-2-threads").layers]
    assert [layer.name for layer in result.layers] == names
    assert {"large", "small"} <= set(names)
    assert all(layer.measured_us > 0 for layer in result.layers)
    assert json.loads(render_validation(result, "json"))["layers"][0]["name"] == "large"


def test_the_layers_that_take_most_are_shown_in_order(result, monkeypatch):
    monkeypatch.setattr("costmodel.measurement.validation_report.TOP_LAYERS", 1)
    _, layers = validation_document(result, "top").sections
    assert layers.title == f"eager layers: the 1 of {len(result.layers)} that take longest"
    assert [row[0] for row in layers.rows] == ["large"]
    _, layers = validation_document(result, "all").sections
    assert [row[0] for row in layers.rows] == [layer.name for layer in result.layers]


def test_a_layer_without_a_measurement_has_no_error():
    assert LayerResult("a", "relu", 3.0, 2.0).error == pytest.approx(0.5)
    assert LayerResult("a", "relu", 3.0, None).error is None
    assert LayerResult("a", "relu", None, 2.0).error is None


def test_every_region_of_a_plan_is_measured_alone():
    plan = plan_for(NET, (X,))
    found = costmodel.validate(NET, (X,), plan=plan, hardware="nvidia-h200", modes=(), seconds=0.001, layers=True)
    assert [region.predicted_us for region in found.regions] == [region.us for region in plan.regions]
    assert [region.kind for region in found.regions] == [region.backend for region in plan.regions]
    assert all(region.measured_us > 0 for region in found.regions)
    titles = [section.title for section in validation_document(found).sections]
    assert titles == ["predicted and measured", "regions of the plan, measured alone", "eager layers"]


def test_a_region_that_cannot_be_measured_has_no_time(monkeypatch):
    def refuse(*_, **__):
        raise MeasurementError("no")

    monkeypatch.setattr("costmodel.measurement.layer_timing.device_time", refuse)
    planned = costmodel.apply(NET, plan_for(NET, (X,)), (X,))
    assert {region.measured_us for region in measure_regions(planned, (X,))} == {None}
    assert torch.equal(planned(X), planned(X))


def test_modules_of_a_region_in_short():
    regions = [Region("eager", ("0",), names, 1.0) for names in ((), ("a",), ("a", "b", "c"))]
    assert [region.span for region in regions] == ["", "a", "a ... c"]


class TestCompiled:
    """Kernels of layers 0 and 1, and one of none (a copy ahead of all)."""

    PREDICTED = (FUSED, "convolution", FUSED, FUSED, "addmm", FUSED)
    HOMES = (None, 0, 0, 1, 1, 1)

    def test_as_many_kernels_as_predicted_are_told_one_by_one(self):
        assert share_out(self.PREDICTED, self.HOMES, self.PREDICTED, [1, 2, 4, 8, 16, 32]) == {0: 6, 1: 56}

    def test_other_library_calls_tell_nothing(self):
        made = (FUSED, "convolution", FUSED, FUSED, "mm", FUSED)
        assert share_out(self.PREDICTED, self.HOMES, made, [1.0] * 6) == {}

    def test_a_number_of_fused_kernels_that_differs_is_told_where_all_are_of_one_layer(self):
        made = (FUSED, "convolution", FUSED, FUSED, "addmm", FUSED, FUSED)
        assert share_out(self.PREDICTED, self.HOMES, made, [1, 2, 4, 8, 16, 32, 64]) == {0: 6, 1: 120}
        made = (FUSED, "convolution", FUSED, "addmm", FUSED)
        assert share_out(self.PREDICTED, self.HOMES, made, [1, 2, 4, 8, 16]) == {}  # two layers between two calls

    def test_a_layer_with_a_call_that_has_no_time_is_not_told(self):
        assert share_out(self.PREDICTED, self.HOMES, self.PREDICTED, [1, 2, 4, 8, 16, 0]) == {0: 6}

    @given(st.lists(st.sampled_from([FUSED, "addmm", "convolution"]), max_size=9), st.data())
    def test_what_is_told_is_what_was_made(self, names, data):
        homes = sorted(data.draw(st.lists(st.integers(0, 3), min_size=len(names), max_size=len(names))))
        us = [float(2**i) for i in range(len(names))]
        found = share_out(names, homes, names, us)
        assert sum(found.values()) == sum(us)
        assert found.keys() == set(homes)

    @pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # torch's own
    def test_inductors_kernels_are_told_by_a_profile(self):
        with torch._inductor.config.patch({"cpp.enable_kernel_profile": True}), torch.no_grad():
            torch._dynamo.reset()
            runner = torch.compile(NET)
            runner(X)
            names, us = compiled_calls(runner, (X,))
            found = costmodel.validate(
                NET, (X,), hardware="amd-epyc-2-threads", modes=("default",), seconds=0.001, layers=True
            )
        assert names == ["addmm", FUSED, "addmm"]  # relu and addition in one loop
        assert all(took > 0 for took in us)
        assert [layer.name for layer in found.compiled_layers] == ["large", "small"]
        assert all(layer.measured_us > 0 for layer in found.compiled_layers)


class TestDivided:
    def test_times_follow_the_predicted_shares(self):
        """8 us of kernel 0 are the first layer's; of kernel 1's 4 us, a quarter is."""
        shares = ({0: 1.0}, {0: 0.25, 1: 0.75})
        assert divided(shares, [(0,), (0, 1)], {(0,): 8.0, (0, 1): 4.0}) == {0: 9.0, 1: 3.0}

    def test_a_layer_with_an_unknown_time_is_left_out(self):
        shares = ({0: 1.0}, {0: 0.25, 1: 0.75}, {2: 1.0})
        assert divided(shares, [(0,), (0, 1), (2,)], {(0,): 8.0, (0, 1): None, (2,): 1.0}) == {2: 1.0}
