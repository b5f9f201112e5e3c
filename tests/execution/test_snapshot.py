"""Changes of a module that a snapshot notices, and conditions of running a plan."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from costmodel.errors import PlanError
from costmodel.execution import snapshot as snapshots
from costmodel.execution.cuda_graph import searching
from costmodel.execution.preconditions import device_of, has_substitutes, named_tensors, refuse_hooks
from costmodel.execution.snapshot import Snapshot


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.scale, self.table = 2.0, torch.ones(2)

    def note(self, *_: object) -> None:
        """A hook that is a method of the model."""


def in_place(module: Net) -> None:
    with torch.no_grad():
        module.layers[0].weight.add_(1)


def moved(module: Net) -> None:
    module.layers[0].weight.data = torch.zeros(2, 2)


@pytest.mark.parametrize(
    "change",
    [
        in_place,
        moved,
        lambda module: setattr(module, "scale", 3.0),
        lambda module: setattr(module, "new", 1),
        lambda module: setattr(module, "table", torch.ones(2)),
        lambda module: module.table.mul_(2),
        lambda module: module.layers.append(nn.ReLU()),
        lambda module: module.layers.pop(1),
        lambda module: delattr(module, "table"),
        lambda module: setattr(module.layers[0], "bias", None),
        lambda module: setattr(module.layers[0], "weight", nn.Parameter(torch.ones(2, 2))),
        lambda module: module.layers[1].running_mean.zero_(),
        lambda module: module.layers[0].register_forward_hook(lambda *_: None),
        lambda module: module.layers[0].register_forward_pre_hook(lambda *_: None),
        lambda module: module.train(not module.training),
        lambda module: module.double(),
    ],
)
@pytest.mark.parametrize("versions", [True, False])
def test_a_change_is_noticed(monkeypatch: pytest.MonkeyPatch, change: Callable[[Net], object], versions: bool):
    """Also without versions of dicts."""
    if not versions:
        monkeypatch.setattr(snapshots, "_dict_version", None)
    module = Net()
    snapshot = Snapshot(module)
    assert not snapshot.has_changed()
    change(module)
    assert snapshot.has_changed()
    assert not Snapshot(module).has_changed()


def test_a_hook_that_goes_is_noticed():
    """The hook is the last member of the last module: nothing else moves when it goes."""
    module = nn.ReLU()
    hook = module.register_forward_pre_hook(lambda *_: None)
    snapshot = Snapshot(module)
    assert not snapshot.has_changed()
    hook.remove()
    assert snapshot.has_changed()


def test_reading_is_no_change():
    module = Net().eval()
    snapshot = Snapshot(module)
    module.layers(torch.ones(3, 2))
    module.scale = module.scale
    assert not snapshot.has_changed()


def test_a_write_of_an_equal_value_is_no_change_and_a_later_one_is():
    module = Net()
    snapshot = Snapshot(module)
    module.scale = float("2")
    assert not snapshot.has_changed()
    module.layers.add_module("0", module.layers[0])
    assert not snapshot.has_changed()
    module.scale = 3.0
    assert snapshot.has_changed()
    module.scale = 2.0
    assert not snapshot.has_changed()


def test_contents_are_compared_only_after_a_write(monkeypatch: pytest.MonkeyPatch):
    compared: list[Snapshot] = []
    monkeypatch.setattr(Snapshot, "_attributes_differ", lambda self: bool(compared.append(self)))
    module = Net()
    snapshot = Snapshot(module)
    for _ in range(3):
        assert not snapshot.has_changed()
    assert len(compared) == 1
    vars(module.layers[0]).update(note=1)
    assert not snapshot.has_changed()
    assert len(compared) == 2


@pytest.mark.parametrize(
    ("version", "changes"), [(lambda _: 1, False), (len, False), (functools.partial(next, itertools.count()), True)]
)
def test_a_version_of_dicts_is_used_if_every_write_changes_it(
    version: Callable[[dict[str, object]], object], changes: bool
):
    """The number of items stays the same when one value replaces another."""
    assert snapshots._changes_with_every_write(version) is changes


def test_a_device_is_that_of_the_parameters_else_of_the_inputs():
    meta = torch.ones(2, device="meta")
    assert device_of(nn.Linear(2, 2), (meta,)) == torch.device("cpu")
    assert device_of(nn.ReLU(), (torch.ones(2),)) == torch.device("cpu")
    for module, inputs, found in (
        (nn.Linear(2, 2, device="meta"), (torch.ones(2),), "meta"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")), (), "cpu, meta"),
        (nn.ReLU(), (), "no device"),
    ):
        with pytest.raises(PlanError, match=rf"must be on one device to run there; they are on {found}$"):
            device_of(module, inputs)


def test_tensors_have_all_of_their_names():
    one = nn.Linear(2, 2, bias=False)
    assert set(named_tensors(nn.ModuleDict({"a": one, "b": one}))) == {"a.weight", "b.weight"}
    assert set(named_tensors(nn.BatchNorm1d(2))) >= {"weight", "running_mean"}


def test_substitutes_of_parameters_are_seen():
    module = nn.Linear(2, 2)
    assert not has_substitutes(module)
    seen: list[bool] = []
    module.register_forward_hook(lambda child, *_: seen.append(has_substitutes(child)))
    torch.func.functional_call(module, {"weight": torch.ones(2, 2)}, (torch.ones(1, 2),))
    assert seen == [True]


def test_hooks_of_the_model_and_of_torch_stay():
    module = Net()
    module.layers[0].register_forward_hook(module.note)
    module.layers[0].register_forward_pre_hook(functools.partial(module.note, 1))
    parametrizations.weight_norm(module.layers[0])
    nn.utils.spectral_norm(nn.Linear(2, 2))
    refuse_hooks(module)


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_other_hooks_are_refused_by_their_module(kind: str):
    module, stranger = Net(), Net()
    getattr(module.layers[0], kind)(stranger.note)
    with pytest.raises(PlanError, match=r"^layers.0 has a forward hook, which a plan would not run; remove it$"):
        refuse_hooks(module)
    whole = nn.ReLU()
    getattr(whole, kind)(functools.partial(print))
    with pytest.raises(PlanError, match=r"^the module has a forward hook"):
        refuse_hooks(whole)


@pytest.mark.parametrize(
    ("before", "wanted", "within"), [(False, True, True), (False, False, False), (True, False, True)]
)
def test_algorithms_are_searched_where_that_is_wanted_or_was_on(
    monkeypatch: pytest.MonkeyPatch, before: bool, wanted: bool, within: bool
):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    with searching(wanted):
        assert torch.backends.cudnn.benchmark is within
    assert torch.backends.cudnn.benchmark is before
