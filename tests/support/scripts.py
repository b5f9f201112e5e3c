"""A script of scripts/ as a module, to be tested."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DIRECTORY = Path(__file__).parents[2] / "scripts"


def load_script(name: str) -> ModuleType:
    """The script of that name, without `.py`."""
    spec = importlib.util.spec_from_file_location(name, DIRECTORY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its data classes look for their types
    spec.loader.exec_module(module)
    return module
