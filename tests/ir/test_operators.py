"""The operator table: complete for real models, and arithmetic that was done by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel import zoo
from costmodel.capture.meta_tensors import RECURRENT
from costmodel.capture.trace import capture
from costmodel.errors import GraphError
from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value, operators
from costmodel.ir.op_table import Role, Row, View
from costmodel.ir.op_table_training import TRAINING_NAMES


def only_op(base: str, shapes: dict[str, tuple[int, ...]], result: tuple[int, ...], **args: Arg) -> tuple[Graph, Op]:
    """A graph of one operator on float32 tensors of those shapes."""
    values = tuple(Value(name, TensorType("float32", shape)) for name, shape in shapes.items())
    refs = tuple((name, Ref(name)) for name in shapes)
    op = Op("0", base, (*refs, *args.items()), (TensorType("float32", result),))
    return Graph("", values, (op,), (Ref("0"),)).verify(), op


class TestFlops:
    @pytest.mark.parametrize(
        ("layer", "expected"),
        [
            # 2 x outputs (1 x 8 x 6 x 6) x inputs of each (3 channels x 3 x 3)
            (nn.Conv2d(3, 8, 3), 2 * 288 * 27),
            # stride 2: outputs 1 x 8 x 3 x 3
            (nn.Conv2d(3, 8, 3, stride=2), 2 * 72 * 27),
            # 3 groups: each output reads one channel
            (nn.Conv2d(3, 9, 3, groups=3), 2 * (9 * 36) * 9),
            # transposed: each of the 1 x 3 x 8 x 8 inputs is written to 5 channels x 2 x 2
            (nn.ConvTranspose2d(3, 5, 2, stride=2), 2 * 192 * 20),
        ],
    )
    def test_convolution(self, layer: nn.Module, expected: int) -> None:
        graph = capture(layer, (torch.empty(1, 3, 8, 8, device="meta"),))
        (convolution,) = [op for op in graph.ops if op.base == "convolution"]
        assert operators.flops(graph, convolution) == expected

    @pytest.mark.parametrize(
        ("base", "shapes", "result", "expected"),
        [
            ("mm", {"self": (4, 5), "mat2": (5, 6)}, (4, 6), 2 * 24 * 5),
            ("addmm", {"self": (6,), "mat1": (4, 5), "mat2": (5, 6)}, (4, 6), 2 * 24 * 5),
            ("bmm", {"self": (3, 4, 5), "mat2": (3, 5, 6)}, (3, 4, 6), 2 * 72 * 5),
            ("baddbmm", {"self": (3, 4, 6), "batch1": (3, 4, 5), "batch2": (3, 5, 6)}, (3, 4, 6), 2 * 72 * 5),
        ],
    )
    def test_products(
        self, base: str, shapes: dict[str, tuple[int, ...]], result: tuple[int, ...], expected: int
    ) -> None:
        graph, op = only_op(base, shapes, result)
        assert operators.flops(graph, op) == expected

    def test_recurrent_layers_go_through_each_matrix_at_every_step(self) -> None:
        lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True).eval()
        graph = capture(lstm, (torch.empty(2, 7, 6, device="meta"),))
        (op,) = [op for op in graph.ops if op.base == "lstm"]
        assert [kind.shape for kind in op.types] == [(2, 7, 10), (2, 2, 5), (2, 2, 5)]
        # 2 x 7 steps x 2 directions x 4 gates of 5 x (6 inputs + 5 states)
        assert operators.flops(graph, op) == 2 * 14 * 2 * 20 * 11

    @pytest.mark.parametrize(("batch_first", "steps"), [(True, 7), (False, 2)])
    def test_recurrent_layers_launch_step_by_step(self, batch_first: bool, steps: int) -> None:
        lstm = nn.LSTM(6, 5, num_layers=3, batch_first=batch_first, bidirectional=True).eval()
        graph = capture(lstm, (torch.empty(2, 7, 6, device="meta"),))
        (op,) = [op for op in graph.ops if op.base == "lstm"]
        row = operators.lookup(op)
        assert row.launches is not None
        assert row.launches(graph, op) == 2 * steps * 3 * 2  # matmul and gates, each layer and direction
        assert row.scratch is not None
        assert row.scratch(graph, op) == (steps - 1) * 6 * (20 * 5 * 4)  # six float32 matrices of 4 gates of 5 x 5

    def test_suppression_compares_every_pair_of_boxes(self) -> None:
        graph, op = only_op("torchvision_nms", {"dets": (5, 4), "scores": (5,)}, (5,), iou_threshold=0.5)
        assert operators.flops(graph, op) == 10 * 19  # 5 x 4 / 2 pairs

    @pytest.mark.parametrize(("ratio", "points"), [(2, 4), (3, 9), (-1, 4)])
    def test_aligned_regions_are_means_of_points_between_pixels(self, ratio: int, points: int) -> None:
        shapes = {"input": (1, 8, 20, 20), "rois": (3, 5)}
        graph, op = only_op("torchvision_roi_align", shapes, (3, 8, 7, 7), sampling_ratio=ratio)
        assert operators.flops(graph, op) == 3 * 8 * 49 * points * 8  # a multiply and an add for each of 4 pixels

    def test_attention_is_two_products(self) -> None:
        shapes = {"query": (1, 2, 10, 16), "key": (1, 2, 12, 16), "value": (1, 2, 12, 8)}
        graph, op = only_op("scaled_dot_product_attention", shapes, (1, 2, 10, 8))
        scores = 2 * 2 * 10 * 12 * 16  # heads x queries x keys x head size
        weighted = 2 * 2 * 10 * 12 * 8  # heads x queries x keys x value size
        assert operators.flops(graph, op) == scores + weighted

    @pytest.mark.parametrize(
        ("base", "shapes", "result", "args", "expected"),
        [
            ("relu", {"self": (4, 5)}, (4, 5), {}, 20),
            ("sigmoid", {"self": (4, 5)}, (4, 5), {}, 4 * 20),
            ("view", {"self": (4, 5)}, (20,), {}, 0),
            ("mean.dim", {"self": (4, 5)}, (4,), {}, 20),  # every element that is read, not the four that result
            ("max_pool2d_with_indices", {"self": (1, 2, 8, 8)}, (1, 2, 4, 4), {"kernel_size": (3, 2)}, 32 * 6),
            ("no_such_operator", {"self": (4, 5)}, (4, 5), {}, 20),  # unknown, never free
        ],
    )
    def test_others_count_their_work(
        self,
        base: str,
        shapes: dict[str, tuple[int, ...]],
        result: tuple[int, ...],
        args: dict[str, Arg],
        expected: int,
    ) -> None:
        graph, op = only_op(base, shapes, result, **args)
        assert operators.flops(graph, op) == expected

    @pytest.mark.parametrize(
        "family",
        [
            ("log", "log1p", "log2"),
            ("exp", "expm1", "special_expm1"),
            ("sin", "cos"),
            ("elu", "celu", "selu"),
            ("prelu", "_prelu_kernel"),
            ("upsample_nearest2d", "_upsample_nearest_exact2d"),
            ("sum", "mean", "amax", "amin"),
            ("addmm", "mm", "bmm"),
        ],
        ids=" ".join,
    )
    def test_functions_of_a_family_count_alike(self, family: tuple[str, ...]) -> None:
        assert len({operators.TABLE[name].work for name in family}) == 1

    @pytest.mark.parametrize(
        ("simple", "costly"), [("relu", "log"), ("log", "sigmoid"), ("sigmoid", "silu"), ("silu", "gelu")]
    )
    def test_functions_made_of_others_count_more(self, simple: str, costly: str) -> None:
        assert operators.TABLE[simple].work < operators.TABLE[costly].work

    def test_a_number_in_place_of_a_tensor_is_named(self) -> None:
        graph, op = only_op("mm", {"mat2": (5, 6)}, (4, 6), self=3)
        with pytest.raises(GraphError, match=r"mm %0: argument 'self' is not a tensor"):
            operators.flops(graph, op)

    # fvcore's and torchvision's published counts are of multiply-accumulates; ours count each twice
    @pytest.mark.parametrize(("model", "gigamacs"), [("resnet18", 1.814), ("resnet50", 4.089), ("vit_b_16", 17.564)])
    def test_whole_models(self, graph_of: Callable[..., Graph], model: str, gigamacs: float) -> None:
        graph = graph_of(model)
        library = [op for op in graph.ops if operators.lookup(op).role is Role.EXTERN]
        assert sum(operators.flops(graph, op) for op in library) == pytest.approx(2e9 * gigamacs, rel=2e-2)


class TestTable:
    def test_two_rows_for_one_operator_are_refused(self) -> None:
        with pytest.raises(GraphError, match="two rows for relu"):
            operators.table_of((Row("relu", "relu", Role.POINTWISE), Row("relu", "relu", Role.VIEW)))

    def test_an_operator_without_a_row_is_unknown(self) -> None:
        assert operators.lookup(Op("0", "relu_squared", (), ())) is operators.UNKNOWN
        assert not operators.UNKNOWN.supported
        assert operators.lookup(Op("0", "relu.out", (), ())).name == "relu"

    def test_costly_results_are_kept_on_a_cpu(self) -> None:
        """`heavy_ops` of StorageBox.should_realize_on_reuse in torch, and SiLU, which is decomposed into one."""
        heavy = {"exp", "log", "log10", "log1p", "log2", "sigmoid", "tanh", "silu"}
        assert all(operators.TABLE[name].realized_on_reuse for name in heavy)
        assert not any(operators.TABLE[name].realized_on_reuse for name in ("relu", "add", "sqrt", "sin", "gelu"))

    @pytest.mark.parametrize("row", operators.TABLE.values(), ids=lambda row: row.name)
    def test_rows_make_sense(self, row: Row) -> None:
        assert row.kind
        assert not row.kind.startswith("_")
        assert row.uses in (1, 2)
        if row.role in (Role.VIEW, Role.SOURCE, Role.CONCAT, Role.JOINED):
            assert row.work == 0
        if row.role is Role.EXTERN and not (row.rare or row.reads):
            assert row.flops is not None
        if row.flops is not None:
            assert row.role in (Role.EXTERN, Role.REDUCTION)
        norm = row.name == "cudnn_batch_norm" or row.name in TRAINING_NAMES  # reads its operands twice
        assert row.scratch is None or row.role is Role.EXTERN or norm

    @pytest.mark.parametrize("row", operators.TABLE.values(), ids=lambda row: row.name)
    def test_columns_are_complete_and_belong_to_the_role(self, row: Row) -> None:
        assert (row.view is not None) == (row.role is Role.VIEW)
        assert row.fx_nodes >= 1
        if row.shifts or row.indirect or row.realized_on_reuse or row.in_place:
            assert row.role is Role.POINTWISE
        if row.random or not row.supported:
            assert row.role is Role.POINTWISE  # a kernel that takes time and is never merged with another

    @pytest.mark.parametrize("row", list(operators.TABLE.values()), ids=lambda row: row.name)
    def test_random_operators_are_those_that_torch_seeds(self, row: Row) -> None:
        packet = getattr(torch.ops.aten, row.name, None)
        overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
        seeded = any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)
        attends = "scaled_dot_product" in row.name
        optional = attends or row.name in RECURRENT  # random only with dropout
        assert row.random == (seeded and not optional)

    @pytest.mark.parametrize(
        "row", [row for row in operators.TABLE.values() if row.role is Role.VIEW], ids=lambda row: row.name
    )
    def test_views_show_elements_as_their_kind_says(self, row: Row) -> None:
        """The elements of a real view are compared with the elements of the viewed tensor, in order."""
        source = torch.arange(24).reshape(1, 4, 6)
        arguments = {
            **dict.fromkeys(("view", "_unsafe_view", "reshape"), ([6, 4],)),
            **dict.fromkeys(("unsqueeze", "squeeze", "unbind"), (0,)),
            **dict.fromkeys(("transpose", "swapaxes"), (1, 2)),
            "permute": ([2, 0, 1],),
            "expand": ([2, 4, 6],),
            "select": (1, 2),
            "slice": (1, 1, 3),
            "narrow": (1, 1, 2),
            **dict.fromkeys(("split", "chunk"), (2, 1)),
            "split_with_sizes": ([1, 3], 1),
        }
        if row.view is View.OTHER:
            return
        if row.name == "t":
            source = source[0]
        if row.name == "unbind":
            source = source[0]
        result = getattr(torch.ops.aten, row.name)(source, *arguments.get(row.name, ()))
        shown = result[0] if isinstance(result, (list, tuple)) else result
        before, after = source.flatten().tolist(), shown.flatten().tolist()
        if row.view is View.IDENTITY:
            assert (shown.shape, after) == (source.shape, before)
        elif row.view is View.RESHAPE:
            assert (after, shown.shape != source.shape) == (before, True)
        elif row.view is View.PERMUTE:
            assert (sorted(after), after != before) == (before, True)
        elif row.view is View.EXPAND:
            assert after == before * 2
        else:
            assert set(after) < set(before)
            assert (shown.dim() == source.dim()) == (row.view is View.NARROW)

    @pytest.mark.parametrize("row", [row for row in operators.TABLE.values() if row.saves], ids=lambda row: row.name)
    def test_what_is_saved_are_arguments_and_results(self, row: Row) -> None:
        packet = getattr(torch.ops.aten, row.name)
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
        arguments = {argument.name for schema in schemas for argument in schema.arguments}
        results = max(len(schema.returns) for schema in schemas)
        for token in row.saves.split():
            if token.startswith("#"):
                assert int(token[1:]) < results
            else:
                assert set(token.split(":")) <= arguments

    @pytest.mark.parametrize("model", ["densenet121", "efficientnet_b0", "googlenet", "regnet_y_400mf", "swin_v2_t"])
    def test_what_training_real_models_saves_is_known(self, model: str) -> None:
        loaded = zoo.load(model)
        graph = capture(loaded.module, loaded.inputs, training=True)
        assert {op.base for op in graph.ops if operators.lookup(op).saves is None} == set()

    def test_rows_name_operators_that_exist(self) -> None:
        """Every row is an ATen operator, but for those that decompositions and the capture of training steps invent."""
        elsewhere = {name for name in operators.TABLE if name.startswith(("torchvision_", "prims_"))}
        invented = {"concat_in_place"} | {f"{name}_backward" for name in RECURRENT} | elsewhere
        ours = {"channel_shuffle", "unsafe_chunk", "contiguous", "repeat_interleave"}  # composite, of every version
        missing = {name for name in operators.TABLE if not hasattr(torch.ops.aten, name)}
        assert missing - ours == invented

    @pytest.mark.parametrize(
        "model",
        [
            "alexnet",
            "convnext_tiny",
            "densenet121",
            "efficientnet_b0",
            "googlenet",
            "inception_v3",
            "maxvit_t",
            "mnasnet0_5",
            "mobilenet_v3_small",
            "regnet_y_400mf",
            "resnet18",
            "shufflenet_v2_x0_5",
            "squeezenet1_1",
            "swin_t",
            "swin_v2_t",
            "vgg11_bn",
            "vit_b_16",
        ],
    )
    def test_every_operator_of_real_models_has_a_row(self, graph_of: Callable[..., Graph], model: str) -> None:
        assert {op.base for op in graph_of(model).ops} <= {
            row.name for row in operators.TABLE.values() if row.supported
        }
