"""Checkpointing plans: file format, equal outputs and gradients, and fewer bytes saved."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.errors import CheckpointPlanError
from costmodel.measurement.peak_memory import StorageWatch
from costmodel.memory.checkpoint import checkpointed
from costmodel.memory.checkpoint_plan import CheckpointPlan, make_plan, parse_plan
from costmodel.memory.checkpoint_regions import choose_modules
from costmodel.memory.saved_tensors import saved_activations, saved_tensors
from costmodel.memory.state import state_of

SHAPE = (8, 8, 16, 16)
PLAN = CheckpointPlan("net", ("0", "1.a"), 100, 60, 2.5)


def block() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.SiLU(inplace=True),
    )


def step(module: nn.Module, owner: nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor], int]:
    """Gradients and buffers after a training step, and the bytes alive between its passes."""
    torch.manual_seed(1)
    x = torch.randn(SHAPE)
    watch = StorageWatch()
    watch.watch([*owner.parameters(), *owner.buffers(), x])
    before = watch.live_bytes
    with watch:
        result = module(x)
        between = watch.live_bytes - before
    result.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in owner.parameters() if parameter.grad is not None]
    return gradients, [buffer.clone() for buffer in owner.buffers()], between


class TestApply:
    def test_gradients_and_buffers_are_equal_and_fewer_activations_are_saved(self) -> None:
        torch.manual_seed(0)
        original = nn.Sequential(block(), block(), block())
        other = copy.deepcopy(original)
        plan = CheckpointPlan("blocks", ("0", "1", "2"), 0, 0, 0.0)
        lean = checkpointed(other, plan)
        plain_gradients, plain_buffers, plain_bytes = step(original, original)
        lean_gradients, lean_buffers, lean_bytes = step(lean, other)
        assert len(lean_gradients) == len(plain_gradients) == 18
        assert all(map(torch.equal, plain_gradients, lean_gradients))
        assert all(map(torch.equal, plain_buffers, lean_buffers))
        assert lean_bytes < plain_bytes

    def test_a_module_whose_saved_product_a_function_overwrites_is_left_alone(self) -> None:
        """`relu_` would write over the saved result of the first linear layer; only dropout can be taken."""

        class Head(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.drop, self.second = nn.Linear(16, 256), nn.Dropout(0.5), nn.Linear(256, 16)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                hidden = nn.functional.relu(self.first(x), inplace=True)
                return self.second(self.drop(torch.sigmoid(hidden)))

        torch.manual_seed(0)
        original, x = nn.Sequential(Head(), Head()), (torch.empty(SHAPE),)
        graph = capture(original, x, "m", training=True)
        chosen = choose_modules(graph, saved_tensors(graph, state_of(original, x).trainable), lambda _: 1.0)
        assert chosen.modules == ("0.drop", "1.drop")
        other = copy.deepcopy(original)
        plain, lean = step(original, original), step(checkpointed(other, make_plan("m", chosen)), other)
        assert all(map(torch.equal, plain[0], lean[0]))

    @pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
    def test_gradients_of_recurrent_modules_are_equal(self, kind: type[nn.RNNBase]) -> None:
        """On a CPU their cells write over results of products, which must not be kept."""

        class Reader(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.read, self.head = kind(16, 8), nn.Linear(8, 2)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(self.read(x)[0])

        torch.manual_seed(0)
        module, x = Reader(), torch.randn(5, 2, 16)
        lean = checkpointed(module, CheckpointPlan("m", ("read",), 2, 1, 1.0))
        found = []
        for one in (module, lean):
            module.zero_grad()
            one(x).square().sum().backward()
            found.append([parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None])
        assert len(found[0]) == len(found[1]) == 6
        for expected, got in zip(*found, strict=True):
            torch.testing.assert_close(got, expected)

    def test_bytes_shrink_as_predicted(self) -> None:
        module = nn.Sequential(*(block()[:3] for _ in range(4)), nn.Conv2d(8, 8, 1, bias=False))
        x = torch.empty(SHAPE, device="meta")
        graph, state = capture(module, (x,), training=True), state_of(module, (x,))
        saved = saved_tensors(graph, state.trainable)
        regions = choose_modules(graph, saved, lambda op: 1.0)
        assert regions.stashed_before == sum(saved_activations(graph, saved).values())
        assert regions.modules
        *_, plain = step(module, module)
        *_, lean = step(checkpointed(module, make_plan("net", regions)), module)
        # a step holds its output besides
        output = 4 * 8 * 8 * 16 * 16
        assert plain == regions.stashed_before + output
        assert lean == regions.stashed_after + output

    def test_saved_tensors_really_are_fewer(self) -> None:
        """Autograd's own hooks see what is saved outside checkpoints; inside, only what is passed in."""

        def saved(module: nn.Module) -> int:
            kept: dict[int, int] = {}

            def pack(tensor: torch.Tensor) -> torch.Tensor:
                kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                result = module(torch.randn(SHAPE))
            assert result.requires_grad
            return sum(kept.values())

        module = nn.Sequential(block(), block())
        assert saved(checkpointed(module, CheckpointPlan("net", ("0", "1"), 0, 0, 0.0))) < saved(module)

    def test_the_original_is_not_changed_and_parameters_are_shared(self) -> None:
        module = nn.Sequential(block())
        lean = checkpointed(module, CheckpointPlan("net", ("0",), 0, 0, 0.0))
        assert module[0][2].inplace is True
        assert "forward" not in vars(module[0])
        assert list(map(id, lean.parameters())) == list(map(id, module.parameters()))
        assert lean.state_dict().keys() == module.state_dict().keys()

    def test_without_gradients_nothing_is_different(self) -> None:
        module = nn.Sequential(block()).eval()
        lean = checkpointed(module, CheckpointPlan("net", ("0",), 0, 0, 0.0))
        with torch.no_grad():
            x = torch.randn(SHAPE)
            assert torch.equal(lean(x), module(x))

    def test_a_list_that_the_caller_goes_on_filling_is_read_as_it_was(self) -> None:
        class Join(nn.Module):
            def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
                return torch.cat(parts, 1).sigmoid().exp()

        class Dense(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(8, 8, 1)
                self.join = Join()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                parts = [self.conv(x)]
                parts.append(self.join(parts))
                return torch.cat(parts, 1)

        module = Dense()
        other = copy.deepcopy(module)
        plain, *_ = step(module, module)
        lean, *_ = step(checkpointed(other, CheckpointPlan("net", ("join",), 0, 0, 0.0)), other)
        assert all(map(torch.equal, plain, lean))

    def test_a_plan_for_another_model_is_refused(self) -> None:
        with pytest.raises(CheckpointPlanError, match=r"Sequential has no module 1.a; the plan was made for net"):
            checkpointed(nn.Sequential(nn.ReLU(), nn.ReLU()), PLAN)


class TestFile:
    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        PLAN.save(tmp_path / "plan.json")
        assert CheckpointPlan.load(tmp_path / "plan.json") == PLAN
        assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"kind": "other"}, "not a checkpointing plan"),
            ({"schema": 2}, "not a checkpointing plan of schema 1; `costmodel memory MODEL --save-plan"),
            ({"modules": "0"}, "modules: expected array, got str"),
            ({"modules": ["a", "a"]}, "a is listed twice or is inside another listed module"),
            ({"modules": ["a", "a.b"]}, "a.b is listed twice or is inside another listed module"),
            ({"stashed_after": -1}, "stashed_after: expected int >= 0"),
            ({"added_us": float("nan")}, "added_us: expected float >= 0"),
            ({"more": 1}, "unknown field more"),
        ],
    )
    def test_another_file_is_refused(self, tmp_path: Path, changes: dict[str, object], message: str) -> None:
        PLAN.save(tmp_path / "plan.json")
        record = json.loads((tmp_path / "plan.json").read_text()) | changes
        with pytest.raises(CheckpointPlanError, match=message):
            parse_plan(record)

    def test_unreadable_and_unwritable_paths_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "plan.json").write_text("{")
        with pytest.raises(CheckpointPlanError, match=r"plan.json: not a checkpointing plan: Expecting"):
            CheckpointPlan.load(tmp_path / "plan.json")
        with pytest.raises(CheckpointPlanError, match="cannot be written"):
            PLAN.save(tmp_path / "nowhere" / "plan.json")
