"""Every table of README.md and docs/ that is made from measurements.

python scripts/tables.py            write the tables into the documents
python scripts/tables.py --check    compare the documents with the tables; exit status 1 and the first that differs
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "docs/accuracy.md",
    "docs/plans.md",
    "docs/memory.md",
    "docs/comparing.md",
    "docs/new-hardware.md",
    "docs/backend.md",
)
COMMANDS = (
    "results.py --write README.md",
    "accuracy.py --write docs/accuracy.md",
    "blind_test.py -o docs/data/unseen_h200.csv --section unseen --write docs/accuracy.md",
    "check_against_timm.py --write docs/accuracy.md",
    "hosts.py --write docs/accuracy.md",
    "compare_user_models.py --write docs/accuracy.md",
    "layers.py --rows docs/data/layers_h200.csv --write docs/accuracy.md",
    "transfer_tables.py --write docs/accuracy.md",
    "settings_tables.py --write docs/accuracy.md",
    "refreshed.py -o docs/data/refresh_cpu.csv --write docs/new-hardware.md",
    "measure_and_compare.py -o docs/data/compared_h200.jsonl --no-measure --write docs/plans.md",
    "measure_and_compare.py -o docs/data/moves_h200.jsonl --no-measure --write-moves docs/plans.md",
    "measure_and_compare.py -o docs/data/others_h200.jsonl --no-measure --write-others docs/plans.md",
    "expert_tables.py docs/data/expert_h200.csv --write docs/plans.md",
    "expert_tables.py docs/data/expert_h200.csv --guards --write docs/backend.md",
    "plan_rooflines.py -o docs/data/plan_rooflines_h200.csv --write docs/plans.md",
    "compared_intervals.py --write docs/comparing.md",
    "build_times.py -o docs/data/build_times_h200.csv --write docs/backend.md",
    "memory.py --rows docs/data/memory_h200.json --write docs/memory.md",
)
"""A script and its arguments, relative to the root of the repository; each writes into one of DOCUMENTS."""
SHOWN = 20
"""Lines of a difference that are printed."""


def make(documents: Path) -> None:
    """Write every table into the copies of DOCUMENTS under a directory.

    Raises:
        DatasetError: a document has no marks for a table.
    """
    for command in COMMANDS:
        script, *arguments = shlex.split(command)
        arguments = [str(documents / one) if one in DOCUMENTS else one for one in arguments]
        path = str(ROOT / "scripts" / script)
        quiet = contextlib.redirect_stdout(io.StringIO())
        with patch.object(sys, "argv", [path, *arguments]), contextlib.chdir(ROOT), quiet:
            runpy.run_path(path, run_name="__main__")


def outdated(root: Path = ROOT) -> str:
    """The difference between the first document under a root that is out of date and its tables; empty if none is."""
    with tempfile.TemporaryDirectory() as directory:
        copies = Path(directory)
        for name in DOCUMENTS:
            (copies / name).parent.mkdir(exist_ok=True)
            (copies / name).write_bytes((root / name).read_bytes())
        make(copies)
        for name in DOCUMENTS:
            lines = [(place / name).read_text(encoding="utf-8").splitlines() for place in (root, copies)]
            if difference := list(difflib.unified_diff(*lines, name, "its tables", lineterm="", n=0)):
                return "\n".join(difference[:SHOWN])
    return ""


def main() -> int:
    """Write the tables, or compare the documents with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a document differs")
    if not parser.parse_args().check:
        make(ROOT)
        return 0
    difference = outdated()
    if difference:
        name = difference.split()[1]
        print(f"{name} differs from its tables; `make tables` writes them:\n{difference}", file=sys.stderr)
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
