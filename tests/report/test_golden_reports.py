"""Every report in every format, as a text that a reader has looked at: samples built by hand, compared whole."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from costmodel.measurement.validation_report import render_validation
from costmodel.memory.report import render_memory
from costmodel.planning.plan_report import render_plan
from costmodel.report import FORMATS, render
from tests.support.sample_reports import KINDS, memory, plan, rendered, report, validation

ENDINGS = {"table": "table.txt"}
"""Endings of files, where they are not the format's name."""


def without_code(page: str) -> str:
    """A page without its styles, its script and their hashes, which are files of the package."""
    bare = re.sub(r"/\*<!\[CDATA\[.*?\]\]>\*/", "", page, flags=re.DOTALL)
    return re.sub(r"sha256-[\w+/=]+", "sha256-", bare)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_reads_as_it_did(golden: Callable[[str, str], None], kind: str, form: str) -> None:
    text = rendered(kind, form)
    assert text.endswith("\n")
    text = without_code(text) if form == "html" else text
    golden(f"reports/{kind}.{ENDINGS.get(form, form)}", text.removesuffix("\n"))


@pytest.mark.parametrize("width", [80, 120])
def test_a_narrow_terminal(golden: Callable[[str, str], None], width: int) -> None:
    tables = (
        render(report(), width=width),
        render_plan(plan(), width=width),
        render_validation(validation(), width=width),
        render_memory(memory(), width=width),
    )
    text = "".join(tables)
    assert all(figure in text for figure in ("4.900-5.100", "2.0e-04", "1.40-1.60", "8,100 calls", "95.0", "72.0"))
    assert re.search(r"^training +95\.0 +head ", text, re.MULTILINE)  # a name stands before its figures
    golden(f"reports/narrow_{width}", "\n".join(tables).removesuffix("\n"))


def test_the_figures_that_a_report_computes() -> None:
    """By hand, so that a golden file written anew cannot hide them."""
    text = rendered("plan", "table")
    assert "2.00x the speed of the fastest mode (predicted)" in text  # 2.0 / 1.0, the plan left out
    assert "a call needs about 3 MiB" in text
    text = rendered("memory", "md")
    assert "| recompute 2 tensors | 13.0 | - | 0.125 | 0.125 |" in text  # 40 - 27
    assert "| checkpoint 5 modules | 24.0 | - | 0.250 | 0.250 |" in text  # 40 - 16
    assert "less than 40.0 MiB of activations; the forward pass takes 1.500 ms" in text  # 31 + 9
    text = rendered("validation", "table")
    assert "largest error of a predicted speedup: 20.0%" in text  # 6 / 4 / 1.25 - 1
    assert "-20.0%" in text  # 4 / 5 - 1, the default mode, and 20 / 25 - 1, a layer
    assert "+25.0%" in text  # 10 / 8 - 1, a compiled layer
