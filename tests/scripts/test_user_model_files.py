"""Models as users write them: the table names every builder, measurements name models of the table, and each runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from user_models import MODELS

from costmodel import zoo
from costmodel.capture.trace import capture

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts" / "user_models"


def builders(path: Path) -> set[str]:
    """Functions of a file that take a batch size."""
    functions = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return {function.name for function in functions if [arg.arg for arg in function.args.args] == ["batch"]}


def test_the_table_has_every_builder_of_every_file():
    found = {path.stem: builders(path) for path in SCRIPTS.glob("*.py")}
    assert {name: set(batches) for name, batches in MODELS.items()} == {name: has for name, has in found.items() if has}


def test_measured_user_models_are_in_the_table():
    specs = {f"{file}.py:{name}" for file, names in MODELS.items() for name in names}
    files = (ROOT / "docs" / "data").glob("*_h200.*")
    data = [path.read_text() for path in files if path.suffix in (".csv", ".json", ".jsonl")]
    measured = {name for text in data for name in re.findall(r"scripts/user_models/(\w+\.py:[a-z]\w*)", text)}
    assert len(measured) > 20
    assert measured <= specs


@pytest.mark.parametrize("spec", ["python_in_forward.py:prints", "stateful.py:hooks", "generation.py:autoencoder"])
def test_a_model_beside_others_is_loaded_by_its_file(spec: str):
    loaded = zoo.load(str(SCRIPTS / spec))
    assert len(capture(loaded.module, loaded.inputs, spec).ops) > 5
