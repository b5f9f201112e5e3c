"""Modules whose own code fails as they are moved: one line, whatever they raise."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel import zoo
from costmodel.errors import RequestError

FAILING = """
from torch import nn

class Net(nn.Conv2d):
    def train(self, mode=True):
        {statement}

def build():
    return Net(3, 4, 1)
"""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("raise SystemExit(3)", "cannot be moved .*SystemExit"),
        ("raise RuntimeError('no way')", "cannot be moved .*no way"),
        ("return 7", "cannot be moved .*'int' object has no attribute"),
    ],
)
def test_a_module_that_cannot_be_moved_is_refused(tmp_path: Path, statement: str, said: str):
    path = tmp_path / "net.py"
    path.write_text(FAILING.format(statement=statement))
    with pytest.raises(RequestError, match=said) as caught:
        zoo.load(f"{path}:build")
    assert "\n" not in str(caught.value)


def test_an_interrupt_is_passed_on(tmp_path: Path):
    (tmp_path / "net.py").write_text(FAILING.format(statement="raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        zoo.load(f"{tmp_path}/net.py:build")
