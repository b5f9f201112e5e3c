"""Memory: hand-counted bytes on tiny graphs, properties, and equality with storages watched on real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.ir import Graph, Op, Ref, TensorType, Value, parse
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.measurement.peak_memory import StorageWatch, inference_peak_bytes, training_peak_bytes
from costmodel.memory.alternatives import LINKS, alternatives
from costmodel.memory.checkpoint_regions import choose_modules
from costmodel.memory.peaks import Peak, inference_peak, live_bytes, training_peak
from costmodel.memory.recompute import recompute
from costmodel.memory.saved_tensors import needing_gradient, saved_activations, saved_tensors, unknown_savers
from costmodel.memory.state import state_of
from costmodel.memory.storages import rounded, storages
from costmodel.memory.workspace import (
    convolution_allowance_bytes,
    convolution_workspaces,
    graph_pool_bytes,
    matmul_workspace_bytes,
)
from costmodel.predictor.group_model import UNMEASURED, GroupModel, none_measured
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.recall import Recall, key_hash
from costmodel.profiles.profile import load_profile

ECHO = """graph echo {
  input %x: float32[1024]
  param %w: float32[1024]
  %0 = mul.Tensor(self=%x, other=%w) : float32[1024]
  %1 = tanh(self=%0) : float32[1024]
  %2 = exp(self=%1) : float32[1024]
  return %2
}"""
"""Each tensor has 1024 x 4 = 4096 bytes."""


class Residual(nn.Module):
    """A branch that lives until the sum; batch norm, in-place activations, pooling, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 1)
        )
        self.act = nn.ReLU6(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 8 * 8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        out = self.body(x)
        out += x
        return self.head(torch.flatten(self.pool(self.act(out)), 1))


class Joined(nn.Module):
    """Lists of features, branches and views, as densely connected networks and attention have them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4 * (1 + n), 4, 3, padding=1) for n in range(3))
        self.norm = nn.LayerNorm(16)
        self.mix = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(torch.sigmoid(layer(torch.cat(features, 1))))
        tokens = self.norm(torch.cat(features, 1).flatten(2).transpose(1, 2))
        query, key, value = self.mix(tokens).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(1, 2), -1)
        return nn.functional.gelu(weights @ value).mean(1)


REAL: tuple[tuple[Callable[[], nn.Module], tuple[int, ...]], ...] = ((Residual, (4, 3, 16, 16)), (Joined, (4, 4, 8, 8)))


def of_training(module: nn.Module, *shape: int) -> tuple[Graph, tuple, int, int]:
    """The graph of a training step, its saved tensors, its peak, and the bytes alive between the passes."""
    x = torch.empty(shape, device="meta")
    graph, state = capture(module, (x,), training=True), state_of(module, (x,))
    saved = saved_tensors(graph, state.trainable)
    peak, between = training_peak(graph, saved, state.trainable, state.resident_bytes)
    return graph, saved, peak.nbytes, between


def test_a_parameter_of_two_names_counts_once_and_is_trained_under_both() -> None:
    one = nn.Linear(8, 8, bias=False)
    module = nn.ModuleDict({"a": one, "b": one})
    found = state_of(module, (torch.empty(4),))
    assert found.trainable == {"a.weight", "b.weight"}
    assert (found.parameter_bytes, found.trainable_bytes) == (512, 512)  # 256 bytes, in one block


def test_the_peak_is_at_a_module_or_else_at_an_operator() -> None:
    class Functional(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

    def peak_at(module: nn.Module) -> str:
        report = costmodel.analyze_memory(module, (torch.empty(4, 8),), hardware="nvidia-h200", passes=("inference",))
        return report.inference.peak_at

    assert peak_at(Functional()) == "exp"
    assert peak_at(nn.Sequential(nn.Softplus())) == "0"


class TestBlocks:
    @pytest.mark.parametrize(("nbytes", "counted"), [(0, 0), (1, 512), (512, 512), (513, 1024)])
    def test_the_allocator_counts_in_steps(self, nbytes: int, counted: int) -> None:
        assert rounded(nbytes) == counted

    def test_views_and_writes_in_place_share_a_block(self) -> None:
        kind = TensorType("float32", (256,))
        ops = (
            Op("0", "exp", (("self", Ref("x")),), (kind,)),
            Op("1", "view", (("self", Ref("0")),), (kind,)),
            Op("2", "relu", (("self", Ref("1")),), (kind,), inplace=True),
        )
        blocks = storages(Graph("g", (Value("x", kind),), ops, (Ref("2"),)).verify())
        assert blocks[Ref("0")] is blocks[Ref("1")] is blocks[Ref("2")]
        assert blocks[Ref("x")] is not blocks[Ref("0")]


class TestInference:
    def test_a_block_dies_after_its_last_use(self) -> None:
        graph = parse(ECHO)
        # resident x and w; then 0, 0 and 1, 1 and 2
        assert live_bytes(graph, 8192) == [8192 + 4096, 8192 + 8192, 8192 + 8192]
        assert inference_peak(graph, 8192).nbytes == 16384

    @pytest.mark.parametrize(("make", "shape"), REAL)
    def test_equals_the_storages_of_a_real_run(self, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
        module, x = make().eval(), torch.randn(shape)
        resident = state_of(module, (x,)).resident_bytes
        assert inference_peak(capture(module, (x,)), resident).nbytes == inference_peak_bytes(module, (x,))

    def test_an_argument_lives_until_its_call_returns(self) -> None:
        class Block(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x.exp().exp().exp()

        module = nn.Sequential(nn.Sigmoid(), Block())
        x = torch.empty(1024, device="meta")
        # x, the sigmoid that the sequence passes, and two of the exponentials: 4 x 4096
        assert inference_peak(capture(module, (x,)), 4096).nbytes == 4 * 4096

    @given(st.integers(1, 6), st.integers(1, 6))
    def test_more_images_need_no_less(self, small: int, more: int) -> None:
        peaks = []
        for batch in (small, small + more):
            x = torch.empty(batch, 4, 8, 8, device="meta")
            graph = capture(JOINED, (x,))
            live = live_bytes(graph, 0)
            peaks.append(inference_peak(graph, 0).nbytes)
            assert peaks[-1] >= max(live)
        assert peaks[0] <= peaks[1]


JOINED = Joined().eval()


class TestStash:
    def test_what_backward_needs_by_hand(self) -> None:
        graph = parse(ECHO)
        saved = saved_tensors(graph, {"w"})
        # mul keeps x for w's gradient and not w, for x needs none; tanh and exp keep their results
        assert [(entry.op, entry.values) for entry in saved] == [(0, (Ref("x"),)), (1, (Ref("1"),)), (2, (Ref("2"),))]
        assert saved_activations(graph, saved) == {Ref("1"): 4096, Ref("2"): 4096}

    def test_nothing_is_kept_where_nothing_is_trained(self) -> None:
        assert saved_tensors(parse(ECHO), set()) == ()
        assert needing_gradient(parse(ECHO), set()) == set()

    def test_an_unknown_operator_keeps_all_and_is_named(self) -> None:
        graph = parse(ECHO.replace("tanh", "strange"))
        assert saved_tensors(graph, {"w"})[1].values == (Ref("0"), Ref("1"))
        assert [op.base for op in unknown_savers(graph)] == ["strange"]

    @pytest.mark.parametrize(("make", "shape"), REAL)
    def test_equals_what_autograd_holds(self, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
        module, x = make().train(), torch.randn(shape)
        watch = StorageWatch()
        watch.watch([*module.parameters(), *module.buffers(), x])
        with watch:
            result = module(x)
            held = watch.live_bytes
        assert result.requires_grad
        assert of_training(module, *shape)[3] == held

    def test_dropout_keeps_a_mask_of_a_byte_an_element(self) -> None:
        module = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
        graph, saved, *_ = of_training(module, 8, 64)
        assert [op.base for op in graph.ops] == ["t", "addmm", "native_dropout"]
        assert saved_activations(graph, saved) == {Ref(graph.ops[-1].name, 1): 512}  # 8 x 64 x 1

    def test_attention_keeps_a_logarithm_a_query(self) -> None:
        class Attend(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.mix = nn.Linear(16, 16)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = self.mix(x)
                return nn.functional.scaled_dot_product_attention(y, y, y)

        _, saved, *_ = of_training(Attend(), 2, 4, 64, 16)
        # 2 x 4 x 64 float32 make 2048 bytes; seed and offset of the random numbers a block each
        assert saved[-1].extra_bytes == 2048 + 512 + 512


class TestTraining:
    def test_by_hand(self) -> None:
        graph = parse(ECHO)
        peak, between = training_peak(graph, saved_tensors(graph, {"w"}), {"w"}, 8192)
        # results of tanh and exp; then the gradient of exp's input beside the sum's single element
        assert between == 8192 + 2 * 4096
        # tanh's backward: its result and that of exp (the output, which the caller holds), two gradients
        assert peak.nbytes == 8192 + 4 * 4096

    @pytest.mark.parametrize(("make", "shape"), REAL)
    def test_is_near_the_storages_of_a_real_step(self, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
        module, x = make().train(), torch.randn(shape)
        measured = training_peak_bytes(module, (x,))
        # the watching mode keeps autograd from adding gradients in place, as it does on its own
        assert of_training(module, *shape)[2] == pytest.approx(measured, rel=0.02)

    def test_module_is_left_in_its_mode(self) -> None:
        module = Residual().eval()
        capture(module, (torch.empty(4, 3, 16, 16, device="meta"),), training=True)
        assert not any(child.training for child in module.modules())
        assert int(module.body[1].num_batches_tracked) == 0


class TestRecompute:
    def test_a_chain_behind_a_product_is_computed_again(self) -> None:
        graph = parse("""graph chain {
          input %x: float32[1024]
          param %w: float32[1024,1024]
          %0 = mv(self=%w, vec=%x) : float32[1024]
          %1 = sigmoid(self=%0) : float32[1024]
          %2 = exp(self=%1) : float32[1024]
          %3 = mv(self=%w, vec=%2) : float32[1024]
          return %3
        }""")
        found = recompute(graph, saved_tensors(graph, {"w"}), lambda op: 2.0)
        # 1 and 2 are kept: 8192. Instead 0 alone could be, or, with one operator less to run, 1: 4096
        assert (found.stashed_before, found.stashed_after, found.ops) == (8192, 4096, ("2",))
        assert found.added_us == 2.0

    def test_one_for_one_is_not_worth_it(self) -> None:
        graph = parse("""graph one {
          input %x: float32[1024]
          param %w: float32[1024,1024]
          %0 = mv(self=%w, vec=%x) : float32[1024]
          %1 = sigmoid(self=%0) : float32[1024]
          return %1
        }""")
        found = recompute(graph, saved_tensors(graph, {"w"}), lambda op: 1.0)
        assert (found.values, found.saved_bytes, found.added_us) == ((), 0, 0.0)

    def test_activations_with_a_common_source_are_chosen_together(self) -> None:
        """Two results of 4096 bytes from one source of 6144: each alone would cost more, both together less."""
        graph = parse("""graph shared {
          input %x: float32[1536]
          param %w: float32[1536,1536]
          %0 = mv(self=%w, vec=%x) : float32[1536]
          %1 = slice.Tensor(self=%0, dim=0, start=0, end=1024) : float32[1024]
          %2 = slice.Tensor(self=%0, dim=0, start=512, end=1536) : float32[1024]
          %3 = sigmoid(self=%1) : float32[1024]
          %4 = sigmoid(self=%2) : float32[1024]
          %5 = add.Tensor(self=%3, other=%4) : float32[1024]
          return %5
        }""")
        found = recompute(graph, saved_tensors(graph, {"w"}), lambda op: 1.0)
        assert (found.stashed_before, found.stashed_after) == (8192, 6144)
        assert found.values == (Ref("3"), Ref("4"))

    @given(
        st.lists(st.sampled_from(["exp", "sigmoid", "neg", "mv", "gelu", "mul"]), min_size=1, max_size=12), st.data()
    )
    def test_saved_bytes_never_grow(self, kinds: list[str], data: st.DataObject) -> None:
        vector, matrix = TensorType("float32", (256,)), TensorType("float32", (256, 256))
        values, made, names = (Value("x", vector), Value("w", matrix, "param")), [], ["x"]
        for kind in ("mv", *kinds):
            source = Ref(data.draw(st.sampled_from(names)))
            args = {
                "mv": (("self", Ref("w")), ("vec", source)),
                "mul": (("self", source), ("other", Ref(data.draw(st.sampled_from(names))))),
            }
            made.append(Op(str(len(made)), kind, args.get(kind, (("self", source),)), (vector,)))
            names.append(made[-1].name)
        graph = Graph("random", values, tuple(made), (Ref(made[-1].name),)).verify()
        found = recompute(graph, saved_tensors(graph, {"w"}), lambda op: 1.0)
        assert found.stashed_after <= found.stashed_before
        assert (found.saved_bytes > 0) == bool(found.values)

    def test_checkpointing_never_saves_more_bytes(self) -> None:
        graph, saved, *_ = of_training(Residual(), 4, 3, 16, 16)
        chosen = choose_modules(graph, saved, lambda op: 1.0)
        assert chosen.need_bytes <= chosen.stashed_before


class TestAlternatives:
    def test_offloading_takes_the_time_of_the_link(self) -> None:
        graph = parse(ECHO)
        found = {item.name: item for item in alternatives(graph, saved_tensors(graph, {"w"}), 0.1, 1e6)}
        one_way = 8192 / LINKS["pcie"]  # 0.149 us; 0.1 us of it hide in the forward pass, all in the backward pass
        assert found["offload over pcie"].moved_bytes == 16384
        assert found["offload over pcie"].added_us == pytest.approx(one_way - 0.1)
        assert found["float16 saved activations"].saved_bytes == 4096
        assert found["float16 saved activations"].busy_us == pytest.approx(2 * (8192 + 4096) / 1e6)

    def test_only_what_a_relu_alone_keeps_becomes_a_mask(self) -> None:
        module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Flatten(), nn.AvgPool1d(2))
        graph, saved, *_ = of_training(module, 32, 64)
        found = {item.name: item for item in alternatives(graph, saved, 1.0, 1e6)}
        assert found["relu masks of 1 bit"].saved_bytes == 0  # the pooling keeps it as well
        graph, saved, *_ = of_training(module[:2], 32, 64)
        found = {item.name: item for item in alternatives(graph, saved, 1.0, 1e6)}
        assert found["relu masks of 1 bit"].saved_bytes == 4 * 32 * 64 - 512  # 2048 bits in a block


class TestWorkspace:
    def test_cublas_has_one_a_thread(self) -> None:
        graph = parse(ECHO)
        assert matmul_workspace_bytes(graph, "9.0", training=True) == 0  # no product
        product = parse(ECHO.replace("tanh(self=%0)", "mv(self=%0, vec=%0)"))
        assert matmul_workspace_bytes(product, "9.0", training=False) == 32 * 2**20
        assert matmul_workspace_bytes(product, "9.0", training=True) == 64 * 2**20
        assert matmul_workspace_bytes(product, "8.0", training=False) == 4096 * 2 * 1024 + 16 * 8 * 1024

    def test_channels_last_convolutions_need_no_copies(self) -> None:
        module = nn.Conv2d(4, 8, 3, bias=False)
        x = torch.empty(2, 4, 10, 10, device="meta")
        # input 2x4x10x10, weight 8x4x3x3, result 2x8x8x8, in float32 and blocks of 512
        assert convolution_allowance_bytes(capture(module, (x,))) == 3584 + 1536 + 4096
        lasting = x.contiguous(memory_format=torch.channels_last)
        copied = capture(module.to(memory_format=torch.channels_last), (lasting,))
        assert convolution_allowance_bytes(copied) == 0

    def test_a_workspace_counts_only_while_its_operator_runs(self) -> None:
        module = nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.ReLU())
        graph = capture(module, (torch.empty(2, 4, 10, 10, device="meta"),))
        convolution, relu = (op.name for op in graph.ops)
        # resident 10,000; the convolution's result is 4,096 and so is ReLU's, which runs beside it
        assert inference_peak(graph, 10_000).nbytes == 10_000 + 2 * 4096
        assert inference_peak(graph, 10_000, {convolution: 4096}) == Peak(10_000 + 2 * 4096, convolution)
        assert inference_peak(graph, 10_000, {convolution: 5000}) == Peak(10_000 + 4096 + 5000, convolution)
        assert inference_peak(graph, 10_000, {relu: 5000}).nbytes == 10_000 + 2 * 4096 + 5000

    def test_a_convolution_with_the_features_of_a_measured_one_takes_its_workspace_and_others_their_neighbours(
        self,
    ) -> None:
        shares = np.array([0.0, 1.0, 1.0, 0.5, 1.0, 1.0, UNMEASURED, 0.0], dtype=np.float32)
        one, none = np.ones(1, np.float32), np.zeros(1, np.float32)
        model = GroupModel(
            names=("x",),
            mean=one,
            scale=one,
            networks=(),
            sample=in_steps(np.arange(8, dtype=np.float32)[:, None] / 2),
            residual=shares,
            reach=1.0,
            edges=none,
            widths=none,
            far=1.0,
            workspace=shares,
        )
        asked = np.array([[0.0], [1.5], [3.0], [1.7]], dtype=np.float32)
        # the first two were measured; 3 was not: the nearest five are 2.5, 3.5, 2, 1.5, 1; of 1.7: 1.5, 2, 1, 2.5, 0.5
        assert model.workspace_share(asked).tolist() == [0.0, 0.5, 1.0, 1.0]
        assert replace(model, workspace=none_measured()).workspace_share(asked).tolist() == [0.0] * 4

    def test_workspaces_are_shares_of_what_convolutions_read_and_write(self) -> None:
        graph = capture(nn.Conv2d(4, 8, 3, bias=False), (torch.empty(2, 4, 10, 10, device="meta"),))
        profile = load_profile("nvidia-h200")
        model = profile.predictor.groups["conv"]
        half = np.full(len(model.sample), 0.5, dtype=np.float32)
        new = replace(model, workspace=half, recall=Recall.nothing())
        predictor = replace(profile.predictor, groups={"conv": new})
        nbytes = 4 * (2 * 4 * 10 * 10 + 8 * 4 * 3 * 3 + 2 * 8 * 8 * 8) // 2
        assert convolution_workspaces(graph, predictor) == {graph.ops[0].name: -(-nbytes // 512) * 512}

    def test_a_measured_convolution_recalls_its_workspace(self) -> None:
        graph = capture(nn.Conv2d(4, 8, 3, bias=False), (torch.empty(2, 4, 10, 10, device="meta"),))
        (kernel,) = (one for one in eager_kernels(graph) if one.anchor.base == "convolution")
        predictor = load_profile("nvidia-h200").predictor
        us = np.ones(1, np.float32)
        for nbytes in (0, 512, 1_049_088):  # 2,049 blocks, of which a logarithm's step is half of one
            recall = Recall.of(np.array([key_hash(kernel.key)]), us, None, np.array([nbytes], np.float32))
            known = replace(predictor, groups={"conv": replace(predictor.groups["conv"], recall=recall)})
            assert known.workspace_bytes([kernel]) == [nbytes]

    def test_a_pool_grows_by_segments(self) -> None:
        assert graph_pool_bytes(peak_bytes=5 << 20, resident_bytes=2 << 20, input_bytes=1) == 4 << 20
