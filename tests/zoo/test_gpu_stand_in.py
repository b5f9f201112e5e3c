"""Models that ask for `cuda` where there is no GPU: built and captured as on one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel import zoo
from costmodel.capture.trace import capture
from costmodel.cli import main
from costmodel.zoo.gpu_stand_in import GPU, GpuStandIn, cuda_answers

Tensor = torch.Tensor
WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "factory": lambda x: x + torch.zeros(3, 1, 1, device="cuda"),
    "index": lambda x: x + torch.ones(3, 1, 1, device=0),
    "device object": lambda x: x * torch.full((1,), 2.0, device=torch.device("cuda", 0)),
    "current device": lambda x: x + torch.arange(8, device=torch.cuda.current_device()),
    "as tensor": lambda x: x * torch.as_tensor([2.0], device="cuda:0"),
    "new": lambda x: x + x.new_zeros(1, device="cuda"),
    "like": lambda x: x + torch.rand_like(x, device="cuda"),
    "cuda": lambda x: x + torch.ones(1).cuda(non_blocking=True),
    "to": lambda x: x + torch.ones(1).to("cuda", torch.float32),
    "to by name": lambda x: x + torch.ones(1).to(device="cuda", non_blocking=True),
    "to another": lambda x: x + torch.ones(1).to(x),
    "default": lambda x: x + under_default(),
    "own": lambda x: x.cuda().to("cuda:0").to(0).relu(),
    "pinned": lambda x: x + torch.ones(1, pin_memory=True).pin_memory().cuda(),
    "kind": lambda x: x * 2 if x.is_cuda and x.device.type == "cuda" and not x.is_meta else boom(),
    "equal": lambda x: x * 2 if x.device == torch.zeros(1, device="cuda").device == GPU else boom(),
    "number": lambda x: x * (x.get_device() + torch.cuda.device_count()),
    "available": lambda x: x * 2 if torch.cuda.is_available() else boom(),
    "synchronize": lambda x: x * (2 + (torch.cuda.synchronize() or torch.cuda.memory_allocated())),
    "autocast": lambda x: x * 2 if not torch.is_autocast_enabled(x.device.type) else boom(),
    "autocast dtype": lambda x: x.to(torch.get_autocast_dtype(x.device.type)).float(),
}


def under_default() -> Tensor:
    with torch.device("cuda"):
        return torch.ones(3, 1, 1)


def boom() -> Tensor:
    raise ValueError("not on a GPU")


class Calls(nn.Module):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.table = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        for name in self.names:
            x = WAYS[name](x)
        assert x.shape == (2, 3, 4, 8)
        return x * self.table


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(WAYS)), max_size=4))
def test_whatever_asks_for_a_gpu_is_captured(names: list[str]) -> None:
    before = torch.cuda.is_available, torch.cuda.current_device
    graph = capture(Calls(names).eval(), (torch.empty(2, 3, 4, 8),))
    assert [value.type.shape for value in graph.values if value.role == "input"] == [(2, 3, 4, 8)]
    assert graph.ops[-1].base == "mul"
    assert (torch.cuda.is_available, torch.cuda.current_device) == before
    assert torch.empty(1, device="meta").device.type == "meta"


@pytest.mark.parametrize("name", sorted(WAYS))
def test_each_way_by_itself(name: str) -> None:
    costmodel.predict(Calls([name]).eval(), (torch.empty(2, 3, 4, 8),), hardware="nvidia-h200")


FILE = """
import torch
from torch import nn
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TABLE = torch.arange(4, device=DEVICE)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        assert DEVICE.type == "cuda"
        self.conv = nn.Conv2d(3, 4, 3, device=DEVICE)
        with torch.device("cuda"):
            self.norm = nn.BatchNorm2d(4)
        self.register_buffer("grid", torch.zeros(4, 1, 1).cuda())
        READS
    def forward(self, x):
        return self.norm(self.conv(x)) + self.grid + TABLE[:, None, None].to(DEVICE)
def build(): return Net().cuda().eval(), torch.randn(1, 3, 8, 8, device=DEVICE)
def images(): return Net().to("cuda").eval()
"""


@pytest.mark.parametrize("reads", ["pass", "assert torch.ones(3, device='cuda').sum().item() == 3"])
@pytest.mark.parametrize("name", ["build", "images"])
@pytest.mark.parametrize("command", ["predict", "ir", "memory"])
def test_a_file_is_built_as_on_a_gpu(
    command: str, name: str, reads: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(FILE.replace("READS", reads))
    loaded = zoo.load(f"{tmp_path}/net.py:{name}")
    assert {tensor.device.type for tensor in [*loaded.module.parameters(), *loaded.module.buffers()]} == {"meta"}
    assert main([command, f"{tmp_path}/net.py:{name}", "-q"]) == 0
    assert capsys.readouterr().err == ""


BY_DEFAULT = """
import torch
from torch import nn
torch.set_default_device("cuda")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("table", torch.arange(4.0))
        READS
    def forward(self, x):
        y = self.conv(x)
        picked = y[:, [1, 3]] + y[:, torch.tensor([0, 2])]
        return picked * torch.tensor(2.0) + torch.ones(2, 1, 1) + self.table[:2, None, None]
def build(): return Net().eval(), torch.randn(1, 3, 8, 8)
"""


@pytest.mark.parametrize("reads", ["pass", "assert torch.ones(3).sum().item() == 3"])
@pytest.mark.parametrize("command", ["predict", "plan"])
def test_the_gpu_may_be_the_default_device(
    command: str, reads: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(BY_DEFAULT.replace("READS", reads))
    assert main([command, f"{tmp_path}/net.py:build", "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert torch.get_default_device().type == "cpu"  # as before


def test_code_of_torch_and_other_threads_get_true_answers() -> None:
    x, said, real = torch.empty(2, device="meta"), [], torch.cuda.is_available()

    def ask() -> None:
        said.append(torch.cuda.is_available())

    with cuda_answers(), GpuStandIn():
        assert torch.cuda.is_available()
        assert x.device == GPU
        assert repr(x) == "tensor(..., device='meta', size=(2,))"  # torch's own code
        assert torch.ones(1, device="cpu").device.type == "cpu"
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert said == [real]
    assert x.device.type == "meta"


def test_the_fast_path_of_attention_is_as_before() -> None:
    # torch's own forward passes go by the device; on meta they do not take their fast paths, which have no meta kernels
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True).eval()
    bases = [op.base for op in capture(layer, (torch.empty(1, 5, 16),)).ops]
    assert "_native_multi_head_attention" in bases
    assert "_transformer_encoder_layer_fwd" not in bases
