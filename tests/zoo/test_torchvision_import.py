"""User code that imports torchvision or timm where torchvision's compiled operators do not load."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROKEN = """
import sys, torch
load = torch.ops.load_library
def fail(path):
    if "torchvision" in str(path): raise OSError("undefined symbol")
    return load(path)
torch.ops.load_library = fail
from costmodel import zoo
from costmodel.capture.trace import capture
assert "torchvision" not in sys.modules
loaded = zoo.load(sys.argv[1])
graph = capture(loaded.module, loaded.inputs, partial=True)
print(*dict.fromkeys(op.base for op in graph.ops if "torchvision" in op.base))
assert len([finder for finder in sys.meta_path if type(finder).__name__ == "_Finder"]) <= 1
"""
AT_THE_TOP = """
import torch, torchvision
from torchvision import models
def build(): return models.squeezenet1_0(weights=None), torch.zeros(1, 3, 64, 64)
"""
IN_FORWARD = """
import torch
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        from torchvision.ops import DeformConv2d
        assert x.shape[1] == 3
        return DeformConv2d(3, 4, 3)(x, torch.zeros(1, 18, 6, 6, device=x.device))
def build(): return Net(), torch.zeros(1, 3, 8, 8)
"""
POOLS = """
import torch
from torch import nn
from torchvision import ops
class Net(nn.Module):
    def forward(self, x, boxes):
        kept = boxes[ops.nms(boxes, boxes[:, 0], 0.5)]
        return [pool(x, [boxes], 2) for pool in (ops.roi_align, ops.roi_pool)], ops.ps_roi_align(x, [boxes], 1), kept
def build(): return Net(), (torch.zeros(1, 4, 8, 8), torch.zeros(5, 4))
"""
OWN_SCHEMA = """
import torch
library = torch.library.Library("torchvision", "FRAGMENT")
library.define("roi_pool(Tensor input, Tensor rois, float scale, SymInt h, SymInt w) -> (Tensor, Tensor)")
import torchvision
def build(): return torch.nn.ReLU()
"""
WITH_TIMM = """
import torch
def build():
    import timm
    return timm.create_model("resnet10t"), torch.zeros(1, 3, 64, 64)
"""


def operators_of(text: str, place: Path) -> set[str]:
    """Operators of torchvision in the model of a file, in a process where torchvision's library cannot be loaded."""
    (place / "net.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, "net.py:build"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "operators"),
    [
        (AT_THE_TOP, set()),
        (IN_FORWARD, {"torchvision_deform_conv2d"}),
        (POOLS, {"torchvision_nms", "torchvision_roi_align", "torchvision_roi_pool", "torchvision_ps_roi_align"}),
        (OWN_SCHEMA, set()),
    ],
    ids=["at the top", "in forward", "operators", "own schema"],
)
def test_torchvision_is_imported_without_its_library(text: str, operators: set[str], tmp_path: Path) -> None:
    assert operators_of(text, tmp_path) == operators


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_timm_finds_it_too(tmp_path: Path) -> None:
    assert operators_of(WITH_TIMM, tmp_path) == set()
