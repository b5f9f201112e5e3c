"""State of a module around a forward pass: copied, restored, and compared."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

import pytest
import torch
from torch import nn

from costmodel.capture.module_state import state_on_meta, untouched
from costmodel.errors import CaptureError


class Caching(nn.Module):
    """A module with attributes of every kind that it may fill."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.cache: dict[str, int] = {"a": 1}
        self.order = OrderedDict(b=2)
        self.found = [1, 2]
        self.seen = {1}
        self.count = 0


def test_everything_that_a_pass_changes_is_restored():
    module = Caching()
    weight = module.inner.weight
    holders = module.cache, module.order, module.found, module.seen
    with untouched(module):
        module.cache["x"] = 5
        module.order.clear()
        module.found += [3]
        module.seen.add(9)
        module.count = 7
        module.new = torch.ones(1)
        module.inner.weight = nn.Parameter(torch.zeros(2, 2))
        del module.inner.bias
    assert (module.cache, module.order, module.found, module.seen) == ({"a": 1}, {"b": 2}, [1, 2], {1})
    assert all(
        one is other
        for one, other in zip(holders, (module.cache, module.order, module.found, module.seen), strict=True)
    )
    assert module.count == 0
    assert not hasattr(module, "new")
    assert module.inner.weight is weight
    assert module.inner.bias is not None


def test_it_is_restored_after_an_exception_too():
    module = Caching()
    with suppress(KeyError), untouched(module):
        module.found.pop()
        raise KeyError
    assert module.found == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.cache.update(x=5),
        lambda module: module.found.reverse(),
        lambda module: setattr(module, "count", 12345),
        lambda module: setattr(module, "new", 1),
        lambda module: setattr(module, "new", []),
        lambda module: module.seen.clear(),
        lambda module: setattr(module.inner, "bias", None),
    ],
)
def test_a_change_is_seen_once(change: object):
    module = Caching()
    with untouched(module) as has_changed:
        assert not has_changed()
        change(module)
        assert has_changed()
        assert not has_changed()


def test_modules_compiled_in_place_run_as_they_were_written():
    module = Caching()
    module.inner.compile()
    compiled = module.inner._compiled_call_impl
    with untouched(module) as has_changed:
        assert module.inner._compiled_call_impl is None
        assert not has_changed()
    assert module.inner._compiled_call_impl is compiled is not None


def test_tied_parameters_stay_tied_and_need_gradients_as_they_did():
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    module["a"].bias.requires_grad_(False)
    module.register_buffer("numbers", torch.ones(2, dtype=torch.int64))
    state = state_on_meta(module, training=False)
    assert set(state) == {"a.weight", "a.bias", "b.weight", "b.bias", "numbers"}
    assert state["a.weight"] is state["b.weight"]
    assert all(tensor.is_meta for tensor in state.values())
    needs = {name: tensor.requires_grad for name, tensor in state.items()}
    assert needs == {"a.weight": True, "a.bias": False, "b.weight": True, "b.bias": True, "numbers": False}
    assert state_on_meta(module, training=True)["a.bias"].requires_grad
    assert not module["a"].bias.requires_grad


def test_whole_numbers_need_no_gradient_in_training_either():
    module = nn.Module()
    module.register_parameter("codes", nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False))
    assert not state_on_meta(module, training=True)["codes"].requires_grad


def test_a_lazy_parameter_is_refused_by_its_name():
    with pytest.raises(CaptureError, match=r"^the parameter 0.weight is not initialised yet; run the module once"):
        state_on_meta(nn.Sequential(nn.LazyLinear(3)), training=False)
