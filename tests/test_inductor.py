"""Inductor's compilation of one graph: what it computes, and that its cache is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from costmodel.emit import build_module
from costmodel.inductor import compile_module
from costmodel.ir import parse

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
