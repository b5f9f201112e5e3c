"""Imports between packages point down one list, lazy imports included; docs/architecture.md shows the packages so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = (
    "costmodel.cli",
    "collectors",
    "costmodel.calibration",
    "costmodel.backend",
    "costmodel.measurement",
    "costmodel.execution",
    "costmodel.planning",
    "costmodel.drawing",
    "costmodel.streamit",
    "costmodel.streams",
    "costmodel.prediction",
    "costmodel.memory",
    "costmodel.profiles",
    "costmodel.timeline",
    "costmodel.training",
    "costmodel.predictor",
    "costmodel.features",
    "costmodel.rewrites",
    "costmodel.inductor",
    "costmodel.kernels",
    "costmodel.capture",
    "costmodel.zoo",
    "costmodel.ir",
    "costmodel.comparison",
    "costmodel.report",
    "costmodel.device",
    "costmodel.tensor_file",
    "costmodel.records",
    "costmodel.files",
    "costmodel.checks",
    "costmodel.concurrency",
    "costmodel.torch_patches",
    "costmodel.errors",
)
"""Every package and lone module, from the top floor down: each imports only from those that follow it."""
FACADE = ("costmodel", "costmodel.__main__")
"""Modules that load public names on demand; nothing below the command line may use them."""


def modules() -> dict[str, Path]:
    """Files of both packages by module name."""
    files = [*(ROOT / "costmodel").rglob("*.py"), *(ROOT / "collectors").rglob("*.py")]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


MODULES = modules()


def imported(module: str) -> Iterator[str]:
    """Modules of both packages that one imports anywhere in its text: as it is loaded, in a function, for types."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("costmodel", "collectors"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def room(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    return "collectors" if module.startswith("collectors") else ".".join(module.split(".")[:2])


IMPORTS = [(module, other) for module in sorted(MODULES) if module not in FACADE for other in imported(module)]


def test_the_list_has_every_package_and_nothing_else():
    assert {room(module) for module in MODULES if module not in FACADE} == set(ORDER)


def test_imports_go_down_the_list():
    floor = {name: number for number, name in enumerate(ORDER)}
    assert len(IMPORTS) > 800
    upward = [
        f"{module} imports {other}"
        for module, other in IMPORTS
        if other not in FACADE and floor[room(other)] < floor[room(module)]
    ]
    assert not upward


def test_only_the_command_line_and_checks_use_the_public_names():
    users = {room(module) for module, other in IMPORTS if other in FACADE}
    assert users <= {"costmodel.cli", "collectors"}


def test_modules_of_a_package_do_not_import_each_other_in_a_circle():
    graph: dict[str, set[str]] = {}
    for module, other in IMPORTS:
        if module != other and MODULES[other].name != "__init__.py":
            graph.setdefault(module, set()).add(other)
    assert len(list(TopologicalSorter(graph).static_order())) > 200  # raises CycleError where there is a circle


def test_the_architecture_page_shows_the_packages_in_this_order():
    _, _, rest = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Layout of the repository")
    )
    shown = re.findall(r"^      (\w+)(?:/|\.py)", rest, re.MULTILINE)
    inside = [name.removeprefix("costmodel.") for name in ORDER if name.startswith("costmodel.")]
    assert shown == inside


@pytest.mark.parametrize("module", [name for name in MODULES if MODULES[name].name == "__init__.py"])
def test_a_package_says_in_a_sentence_what_it_is_for(module: str):
    doc = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    assert doc
    assert doc.partition("\n")[0].endswith(".")
    assert "TODO" not in doc
