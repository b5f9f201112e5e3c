"""Inductor's compilation of one graph: its outputs, and use of the disk cache."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

import costmodel
from costmodel.execution.fx_module import build_module
from costmodel.execution.inductor_compile import compile_module, share_cache
from costmodel.ir import parse

ROOT = Path(costmodel.__file__).parent.parent

PRODUCT = """graph _ {
  input %a0: float32[4,8]
  param %p0: float32[8,3]
  %0 = mm(self=%a0, mat2=%p0) : float32[4,3]
  return %0
}"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")
def test_what_was_compiled_before_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(4, 8, generator=generator), torch.randn(8, 3, generator=generator)
    hits = []
    for _ in range(2):
        before = counters["inductor"]["fxgraph_cache_hit"]
        with torch.no_grad():
            (result,) = compile_module(build_module(parse(PRODUCT)), [x, weight])(x, weight)
        torch.testing.assert_close(result, x @ weight)
        hits.append(counters["inductor"]["fxgraph_cache_hit"] - before)
    assert hits == [0, 1]


EARLY = "import types; early = sys.modules['e'] = types.ModuleType('e'); import torch; early.torch = torch"
"""Torch, and before it a module that holds it, as the main module of a process that multiprocessing spawned does."""


@pytest.mark.slow
def test_keys_of_the_cache_do_not_depend_on_the_order_of_imports():
    key = "import sys, pickle; {}; print(pickle.dumps(torch.channels_last).hex())"
    shared = "from costmodel.execution.inductor_compile import share_cache; share_cache()"
    plain, early = "import torch", EARLY
    found = [_printed(key.format("; ".join(lines))) for lines in ([plain], [early], [plain, shared], [early, shared])]
    assert found[0] != found[1]
    assert found[2] == found[3]


def _printed(code: str) -> str:
    environment = {"PATH": "/usr/bin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def test_a_memory_format_stays_what_it_is():
    share_cache()
    for memory_format in (torch.channels_last, torch.contiguous_format):
        assert pickle.loads(pickle.dumps(memory_format)) is memory_format
