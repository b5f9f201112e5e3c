"""Kernels of compiled code against those of Inductor's own scheduler, run for a GPU on fake tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from costmodel.capture.trace import capture
from costmodel.inductor.pipeline import compiled_kernels
from tests.support.inductor_cases import CASES

pytest.importorskip("triton", reason="Inductor plans kernels for a GPU only with Triton installed")

pytestmark = pytest.mark.slow  # in the fixture, whose time is no test's

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def by_inductor() -> dict[str, list[int] | str]:
    """Kernels and calls that Inductor makes of each case, or its error, found in a process of its own.

    What other tests compiled has no part in it, and they never meet an Inductor that took a GPU to be there.
    """
    command = [sys.executable, "-m", "tests.support.inductor_for_gpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_as_many_kernels_as_inductor(name: str, by_inductor: dict[str, list[int] | str]) -> None:
    module, shape = CASES[name]
    kernels = compiled_kernels(capture(module.eval(), (torch.empty(shape, device="meta"),)))
    generated = sum(kernel.launches for kernel in kernels if kernel.backend == "triton")
    calls = sum(kernel.backend == "aten" for kernel in kernels)
    made = by_inductor[name]
    assert not isinstance(made, str), made
    assert [generated, calls] == made
