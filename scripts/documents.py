"""Real output in README.md and docs/: each marked command is run, and what it prints follows the mark.

    <!-- output: costmodel hardware -->                 what the command prints
    <!-- output 12: costmodel ir resnet18 -->           its first 12 lines
    <!-- output -8: costmodel predict a b -->           its last 8 lines
    <!-- run: costmodel predict resnet18 -o a.json -->  run before, for the files that it writes
    <!-- recorded: resnet50 32 float16 -->              `costmodel validate` as recorded on an NVIDIA H200

python scripts/documents.py            write the outputs into the documents
python scripts/documents.py --check    exit status 1 and the first difference if one is out of date
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import re
import shlex
import sys
import tempfile
import warnings
from pathlib import Path
from unittest.mock import patch

import msgspec

from costmodel.cli import main as costmodel
from costmodel.cli import streams
from costmodel.errors import DatasetError
from costmodel.measurement.validation_report import Validation, render_validation

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
RECORDED = ROOT / "docs" / "data" / "compared_h200.jsonl"
COLUMNS = 110
"""Columns of the terminal that the outputs are for."""
FILE = re.compile(r"<!-- file: (\S+) -->\n+```\w*\n(.*?)```", re.DOTALL)
"""A file that the commands of a document use, in the document itself."""
_MARK = re.compile(
    r"<!-- run: (?P<before>.+?) -->"
    r"|(?P<begin><!-- (?:output(?: (?P<lines>-?\d+))?: (?P<command>.+?)|recorded: (?P<recorded>.+?)) -->\n)"
    r"(?:.*?)(?P<end><!-- end of output -->)",
    re.DOTALL,
)


def filled(text: str) -> str:
    """A document's text with the outputs of its commands, which run in an empty directory.

    Raises:
        DatasetError: a command fails, or nothing is recorded of a case.
    """
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        write_files(text, Path(directory))
        return _MARK.sub(_filled, text)


def has_outputs(text: str) -> bool:
    """Whether a document has a marked command."""
    return _MARK.search(text) is not None


def write_files(text: str, directory: Path) -> None:
    """Write the files that a document shows into a directory."""
    for name, content in FILE.findall(text):
        (directory / name).write_text(content, encoding="utf-8")


def _filled(mark: re.Match[str]) -> str:
    if mark["before"]:
        run(mark["before"])
        return mark[0]
    command = mark["command"] or f"costmodel validate {_options(*mark['recorded'].split())}"
    output = recorded(*mark["recorded"].split()) if mark["recorded"] else run(command)
    lines = output.splitlines()
    count = int(mark["lines"] or len(lines))
    kept = [*lines[:count], "..."] if count >= 0 else ["...", *lines[count:]]
    shown = kept if abs(count) < len(lines) else lines
    return "\n".join([f"{mark['begin']}```text", f"$ {command}", *shown, "```", mark["end"]])


def _options(model: str, batch_size: str, precision: str) -> str:
    size = f" -b {batch_size}" if batch_size != "1" else ""
    return f"{model}{size}" + (f" --precision {precision}" if precision != "float32" else "")


def run(command: str) -> str:
    """Standard output of a command, as on a terminal of COLUMNS columns without colours.

    Raises:
        DatasetError: it fails.
    """
    program, *arguments = shlex.split(command)
    printed: list[str] = []
    terminal = patch.object(streams, "result_columns", lambda: COLUMNS)
    encoding = patch.object(streams, "result_encoding", lambda: "utf-8")
    written = patch.object(streams, "write_result", printed.append)
    colours = patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": str(COLUMNS)})
    with (
        terminal,
        encoding,
        written,
        colours,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()) as other,
    ):
        status = costmodel(arguments) if program == "costmodel" else 2
    if status:
        raise DatasetError(f"{command}: exit status {status}")
    return ("".join(printed) or other.getvalue()).rstrip("\n") + "\n"


def recorded(model: str, batch_size: str, precision: str) -> str:
    """Output of `costmodel validate` for a case in RECORDED, the last measurement.

    Raises:
        DatasetError: there is none.
    """
    records = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    found = [
        record for record in records if record["case"] == [model, int(batch_size), precision] and "modes" in record
    ]
    if not found:
        raise DatasetError(f"{RECORDED}: no measurement of {model}, batch {batch_size}, {precision}")
    return render_validation(msgspec.convert(found[-1], Validation), "table", width=COLUMNS)


def difference(root: Path = ROOT) -> str:
    """The difference between the first document that is out of date and its outputs; empty if none is."""
    for name in DOCUMENTS:
        if found := difference_of(root / name):
            return found
    return ""


def difference_of(path: Path) -> str:
    """The difference between a document and its outputs; empty if there is none."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(), filled(text).splitlines()
    return "\n".join(difflib.unified_diff(*lines, path.name, "its commands", lineterm="", n=0))


def main() -> int:
    """Write the outputs, or compare the documents with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a document differs")
    parser.add_argument("documents", nargs="*", default=DOCUMENTS, metavar="FILE", help="default: all documents")
    args = parser.parse_args()
    for name in args.documents:
        path = ROOT / name
        if not args.check:
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif found := difference_of(path):
            print(f"{name} differs from its commands; scripts/documents.py writes them:\n{found}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
