"""Scripts that write the documents: outputs of commands, the reference, coverage of the intervals of `compare`."""

from __future__ import annotations

import math
from pathlib import Path

import documents
import pandas as pd
import pytest
import reference
from compared_intervals import table

import costmodel
from costmodel.errors import DatasetError

VERSION = f"costmodel {costmodel.__version__}"


class TestOutputs:
    def test_an_output_follows_its_mark_and_replaces_the_old_one(self) -> None:
        before, end = "a\n<!-- output: costmodel --version -->\n", "<!-- end of output -->\nb"
        filled = f"{before}```text\n$ costmodel --version\n{VERSION}\n```\n{end}"
        assert documents.filled(before + end) == filled
        assert documents.filled(f"{before}old\n{end}") == filled
        assert documents.filled(filled) == filled

    def test_a_number_of_lines_cuts_it(self) -> None:
        text = "<!-- output 1: costmodel hardware -->\n<!-- end of output -->"
        assert documents.filled(text).splitlines()[1:5] == [
            "```text",
            "$ costmodel hardware",
            "hardware profiles",
            "...",
        ]

    def test_a_negative_number_of_lines_keeps_the_last(self) -> None:
        text = "<!-- output -1: costmodel hardware -->\n<!-- end of output -->"
        shown = documents.filled(text).splitlines()[1:-1]
        assert shown[:3] == ["```text", "$ costmodel hardware", "..."]
        assert shown[3].startswith("nvidia-h200")

    def test_a_command_runs_before_for_its_file(self) -> None:
        before = "<!-- run: costmodel hardware nvidia-h200 --format json -o a.json -->\n"
        with pytest.raises(DatasetError, match=r"compare a\.json a\.json: exit status 2"):  # no report
            documents.filled(f"{before}<!-- output: costmodel compare a.json a.json -->\n<!-- end of output -->")
        assert documents.filled(before) == before

    def test_a_command_finds_the_files_of_its_document(self) -> None:
        text = "<!-- file: net.py -->\n```python\nx = 1\n```\n"
        assert documents.FILE.findall(text) == [("net.py", "x = 1\n")]

    def test_a_command_that_fails_is_no_output(self) -> None:
        with pytest.raises(DatasetError, match="hardware gtx: exit status 2"):
            documents.filled("<!-- output: costmodel hardware gtx -->\n<!-- end of output -->")

    def test_what_was_recorded_is_shown_with_the_command_that_recorded_it(self) -> None:
        text = documents.filled("<!-- recorded: resnet50 32 float16 -->\n<!-- end of output -->")
        assert "$ costmodel validate resnet50 -b 32 --precision float16\nresnet50 on NVIDIA H200" in text
        with pytest.raises(DatasetError, match="no measurement of resnet50, batch 3, float16"):
            documents.recorded("resnet50", "3", "float16")

    def test_a_document_that_is_out_of_date_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "a.md"
        path.write_text(
            "<!-- output: costmodel --version -->\n```text\n$ costmodel --version\nold\n```\n<!-- end of output -->\n"
        )
        assert documents.difference_of(path).splitlines()[-2:] == ["-old", f"+{VERSION}"]


class TestReference:
    def test_a_docstring_as_markdown(self) -> None:
        docstring = """Do it.

More about it,
in two lines.

Args:
    first, second: the two
        operands.
    third: one.

Raises:
    RequestError: it is impossible.
"""
        assert reference.markdown(docstring) == (
            "Do it.\n\nMore about it, in two lines.\n\n**Arguments**\n\n- `first`, `second`: the two operands.\n"
            "- `third`: one.\n\n**Errors**\n\n- `RequestError`: it is impossible.\n"
        )

    def test_every_public_name_has_a_heading(self) -> None:
        headings = [line.removeprefix("### ") for line in reference.text().splitlines() if line.startswith("### ")]
        assert set(headings) == set(costmodel._EXPORTS)

    def test_check_says_whether_the_file_is_current(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(reference, "FILE", tmp_path / "reference.md")
        reference.FILE.write_text("old")
        monkeypatch.setattr("sys.argv", ["reference.py", "--check"])
        assert reference.main() == 1
        monkeypatch.setattr("sys.argv", ["reference.py"])
        assert reference.main() == 0
        assert reference.FILE.read_text() == reference.text()


def test_coverage_by_hand() -> None:
    """Errors 0 and 0.1 in one family, 1.0 in another, on one machine; at r = 0.5 the width is that of one error."""
    errors = [0.0, 0.1, 1.0]
    frame = pd.DataFrame(
        {
            "model": ["a", "b", "c"],
            "family": ["x", "x", "y"],
            "environment": 0,
            "batch_size": 1,
            "precision": "float32",
        }
    )
    for name in ("eager_us", "default_us", "graph_us", "speedup/default", "speedup/reduce-overhead"):
        frame[f"probed_{name}"] = 1.0
        frame[f"measured_{name}"] = [math.exp(error) for error in errors]
    # 90 % quantile of |error|: 0.1 + 0.8 * 0.9 = 0.82; pairs: |0.1| in one family, |1.0| and |0.9| in two
    first, *_ = table(frame, correlation=0.5).splitlines()[2:]
    assert first == "| latency, `eager` | 1 | 100 % | 2 | 0 % |"
    assert table(frame, correlation=0.0).splitlines()[2] == "| latency, `eager` | 1 | 100 % | 2 | 100 % |"  # 1.16
