"""Things that a trace with Dynamo does not do, and what it leaves as it was."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch
from torch import nn

from costmodel.capture.dynamo import trace_with_dynamo
from costmodel.capture.spared_work import spared_work

TRACED_ALONE = """
import sys, torch
from costmodel.capture.dynamo import trace_with_dynamo
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
trace = trace_with_dynamo(model, (torch.ones(1, 3, 8, 8),))
assert trace.compiled == 1
compilers = "networkx", "torch._inductor.codecache", "torch._functorch.aot_autograd"
print(*(name for name in compilers if name in sys.modules))
"""


@pytest.mark.slow
def test_a_check_imports_no_compiler():
    found = subprocess.run([sys.executable, "-c", TRACED_ALONE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_everything_is_put_back():
    from torch._dynamo import convert_frame, eval_frame, guards, symbolic_convert
    from torch.utils import _traceback

    names = {
        torch._dynamo: "lookup_backend",
        convert_frame: "_is_registered_backend",
        eval_frame: "get_compiler_fn",
        guards: "profile_guard_manager",
        symbolic_convert: "get_funcname",
        _traceback: "shorten_filename",
    }
    before = [getattr(owner, name) for owner, name in names.items()]
    handlers = logging.getLogger("torch.__trace").handlers
    with spared_work(print):
        assert [getattr(owner, name) for owner, name in names.items()] != before
    assert [getattr(owner, name) for owner, name in names.items()] == before
    assert logging.getLogger("torch.__trace").handlers is handlers


def test_a_structured_trace_is_kept_where_the_user_asked_for_one(monkeypatch: pytest.MonkeyPatch):
    log = logging.getLogger("torch.__trace")
    asked, not_asked = logging.NullHandler(), logging.NullHandler()
    asked.root_dir, not_asked.root_dir = "traces", None
    monkeypatch.setattr(log, "handlers", [asked, not_asked])
    with spared_work(print):
        assert log.handlers == [asked]


def test_other_backends_are_found_as_ever():
    from torch._dynamo import eval_frame

    def backend(graph, _inputs):
        return graph.forward

    with spared_work(backend):
        assert eval_frame.get_compiler_fn(backend) is backend
        assert eval_frame.get_compiler_fn("eager") is not backend
        assert callable(torch._dynamo.lookup_backend("aot_eager"))


class CompilesItself(nn.Module):
    """A module that calls a compiled function with a backend of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.compile(torch.sin, backend="eager")

    def forward(self, x):
        return self.inner(x) + 1


def test_a_module_that_compiles_a_part_is_traced_whole():
    trace = trace_with_dynamo(CompilesItself(), (torch.ones(3),))
    assert [section.ops for section in trace.sections] == [("sin", "add")]
