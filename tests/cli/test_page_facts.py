"""Form of a result by its file's suffix; the page of a user's model, with what only the command line knows."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from costmodel import __version__
from costmodel.cli import main
from costmodel.cli.options import Format
from costmodel.cli.output import form_of
from costmodel.cli.page_facts import drawing_of, profile_facts
from costmodel.ir import Graph
from costmodel.profiles.profile import Profile
from costmodel.report.page import MOST_DRAWN
from tests.support.page_reports import with_layers

NET = """
from torch import nn
import torch

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval(), torch.zeros(1, 3, 32, 32)
"""


@pytest.mark.parametrize(
    ("wanted", "name", "form"),
    [
        (None, "r.html", "html"),
        (None, "r.HTML", "html"),
        (None, "r.json", "json"),
        (None, "r.csv", "csv"),
        (None, "a.b/r.md", "md"),
        (None, "r.txt", "table"),
        (None, "html", "table"),
        (None, None, "table"),
        (Format.JSON, "r.html", "json"),
        (Format.TABLE, "r.html", "table"),
    ],
)
def test_the_form_is_the_wanted_one_else_that_of_the_suffix(wanted: Format | None, name: str | None, form: str) -> None:
    assert form_of(wanted, None if name is None else Path(name)) == form


def test_a_page_has_the_command_the_profile_and_the_graph(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    target = tmp_path / "report of a net.html"
    arguments = ["predict", f"{tmp_path}/net.py:build", "--hardware", "nvidia-h200", "-q", "-o", str(target)]
    assert main(arguments) == 0
    page = target.read_text()
    root = ElementTree.fromstring(page)
    said = " ".join(" ".join(root.itertext()).split())
    assert f"costmodel {' '.join(arguments[:-1])} '{target}'" in said
    assert __version__ in said
    assert "accuracy on held-out models" in said
    units = [element for element in root.iter("g") if element.get("class") == "unit"]
    assert [unit.get("data-layer") for unit in units] == ["0", "2"]
    assert all(float(unit.get("data-speedup", "")) > 0 for unit in units)
    data = json.loads(page.partition('data-case="c0">')[2].partition("</script>")[0])
    assert data["ceilings"]["bytes"] > 1e6  # over a terabyte a second
    assert {"eager", "default", "reduce-overhead"} == data["kernels"].keys()


def test_other_commands_take_the_form_of_the_suffix_too(tmp_path: Path) -> None:
    assert main(["hardware", "-o", str(tmp_path / "list.html")]) == 0
    assert "nvidia-h200" in "".join(ElementTree.fromstring((tmp_path / "list.html").read_text()).itertext())


def test_facts_of_a_profile_are_its_ceilings_and_its_accuracy(h200: Profile) -> None:
    found = profile_facts(h200)
    assert found.ceilings is not None
    assert found.ceilings.bytes_per_us == h200.predictor.roofline.bytes_per_us
    assert dict(found.about)["memory bandwidth"].startswith(f"{found.ceilings.bytes_per_us / 1e3:,.0f}"[:3])
    assert [section.title for section in found.accuracy][-1] == "accuracy on held-out models"


def test_a_graph_of_too_many_layers_is_not_drawn() -> None:
    many = with_layers({f"conv{index}": (2.0, 1.0) for index in range(MOST_DRAWN + 1)})
    assert drawing_of(Graph("net", (), (), ()), many) == ""
