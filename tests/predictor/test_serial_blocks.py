"""Times of kernels of few long blocks, by hand."""

from __future__ import annotations

import pytest

from costmodel.features import Roofline
from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.serial_blocks import BATCH_NORMS, MOST_KEPT, batch_norm_us, foreach_us

MULTIPROCESSORS = 100
FORWARD = BATCH_NORMS["batch_norm"]


def roofline(bytes_per_us: float) -> Roofline:
    """Ceilings of a device of a bandwidth, whose smallest kernel takes a microsecond."""
    return Roofline(bytes_per_us, {}, 1.0)


def norm(shape: tuple[int, ...], backward: bool = False) -> Kernel:
    """Batch norm in training over a tensor."""
    kind, vector = TensorType("float32", shape), TensorType("float32", (shape[1],))
    values = [Value("a0", kind), *(Value(f"p{place}", vector, "param") for place in range(4))]
    args: list[tuple[str, Arg]] = [("input", Ref("a0")), ("weight", Ref("p0")), ("bias", Ref("p1"))]
    args += [("running_mean", Ref("p2")), ("running_var", Ref("p3")), ("training", True)]
    op = Op("0", "cudnn_batch_norm_backward" if backward else "cudnn_batch_norm", tuple(args), (kind, vector, vector))
    return Kernel("aten", Graph("", tuple(values), (op,), (Ref("0"),)), ("0",))


def multi_tensor(*sizes: int) -> Kernel:
    """A multi-tensor product on one list of tensors."""
    kinds = tuple(TensorType("float32", (size,)) for size in sizes)
    values = tuple(Value(f"a{place}", kind) for place, kind in enumerate(kinds))
    refs = tuple(Ref(value.name) for value in values)
    op = Op("0", "_foreach_mul.Scalar", (("self", refs), ("scalar", 2.0)), kinds)
    made = tuple(Ref("0", place) for place in range(len(kinds)))
    return Kernel("aten", Graph("", values, (op,), made), ("0",))


@pytest.mark.parametrize(
    ("shape", "us"),
    [
        ((1, 4, 70, 105), 1 + 1.36 + 1),  # 7,350 elements kept on the chip, a microsecond
        ((2, 4, 100, 152), 1 + 1.36 + 20),  # 30,400 are read anew: 1,520 a microsecond
        ((1, 250, 70, 105), 1 + 2.5 * (1.36 + 1)),  # 250 channels on 100 multiprocessors
        ((1, 50, 70, 105), 1 + 1.36 + 1),  # half of the multiprocessors are idle
    ],
)
def test_a_batch_norm_has_a_block_for_each_channel(shape: tuple[int, ...], us: float):
    assert batch_norm_us(norm(shape), FORWARD, roofline(1e12), MULTIPROCESSORS) == pytest.approx(us)


def test_a_batch_norms_gradient_has_costs_of_its_own():
    kernel = norm((1, 4, 10, 398), backward=True)
    costs = BATCH_NORMS[kernel.kind]
    assert batch_norm_us(kernel, costs, roofline(1e12), MULTIPROCESSORS) == pytest.approx(1 + 1.15 + 1)


def test_a_batch_norm_is_no_faster_than_its_traffic():
    slow, kernel = roofline(1.0), norm((1, 4, 8, 8))
    assert batch_norm_us(kernel, FORWARD, slow, MULTIPROCESSORS) == pytest.approx(1.17 * slow.bound_us(kernel))


def test_what_fits_on_the_chip_is_read_faster():
    assert 25_088 <= MOST_KEPT < 39_200
    assert all(costs.kept_per_us > costs.read_per_us for costs in BATCH_NORMS.values())


def test_a_multi_tensor_operator_ends_with_its_largest_block():
    fast = roofline(1e12)
    assert foreach_us(multi_tensor(2500, 25), fast) == pytest.approx(1 + 1)
    assert foreach_us(multi_tensor(65_536 * 3), fast) == pytest.approx(1 + 65_536 / 2500)  # three chunks at once
    # 110 tensors in the first launch, one in the second
    assert foreach_us(multi_tensor(*[5000] * 110, 2500), fast) == pytest.approx(1 + 2 + 1 + 1)


def test_a_multi_tensor_operator_of_many_blocks_takes_the_time_of_its_traffic():
    # 100 tensors of 1,000 elements of 4 bytes are read and written: 800,000 bytes, and 0.4 us of the largest block
    assert foreach_us(multi_tensor(*[1000] * 100), roofline(1000.0)) == pytest.approx(1 + 800)
    assert foreach_us(multi_tensor(0, 0), roofline(1000.0)) == 0
