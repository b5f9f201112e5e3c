"""Modules built without weights: on the meta device first, then on the CPU, and unchanged where weights are wanted."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from costmodel.zoo.build import build, real_weights, skipped_initialisation
from costmodel.zoo.source_files import is_installed


def test_a_module_is_built_on_the_meta_device():
    assert build(lambda: nn.Linear(2, 2)).weight.is_meta


def test_a_constructor_that_reads_values_is_built_on_the_cpu_without_initialisation():
    def factory() -> nn.Linear:
        made = nn.Linear(2, 2)
        with torch.no_grad():
            made.weight.fill_(3.0)
        nn.init.zeros_(made.weight)
        assert made.weight.sum().item() == 12.0
        return made

    assert build(factory).weight.device == torch.device("cpu")


def test_an_error_of_both_attempts_is_that_of_the_second():
    attempts = itertools.count(1)

    def factory() -> None:
        raise ValueError(f"attempt {next(attempts)}")

    with pytest.raises(ValueError, match=r"^attempt 2$"):
        build(factory)
    with real_weights(), pytest.raises(ValueError, match=r"^attempt 3$"):
        build(factory)
    assert next(attempts) == 4


def test_weights_are_initialised_where_they_are_wanted():
    with real_weights():
        made = build(lambda: nn.init.ones_(torch.zeros(2)))
    assert made.tolist() == [1.0, 1.0]
    assert build(lambda: torch.empty(1)).is_meta


def test_initialisation_is_skipped_within_and_put_back():
    before = nn.init.ones_
    with skipped_initialisation():
        assert nn.init.ones_(torch.zeros(2)).tolist() == [0.0, 0.0]
        assert nn.init.calculate_gain("relu") == pytest.approx(2**0.5)
    assert nn.init.ones_ is before
    assert nn.init.ones_(torch.zeros(2)).tolist() == [1.0, 1.0]


def test_files_of_packages_and_of_python_are_installed():
    assert is_installed(torch.__file__)
    assert is_installed(str(pytest.__file__))
    assert is_installed("<frozen importlib._bootstrap>")
    assert not is_installed(__file__)
    assert not is_installed("<string>")
