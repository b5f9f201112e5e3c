"""The published schema of the JSON that `costmodel predict` prints.

python scripts/json_schema.py            write docs/predict.schema.json
python scripts/json_schema.py --check    exit status 1 if it differs from the record types
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from costmodel.report.json_schema import predict_schema

FILE = Path(__file__).parent.parent / "docs" / "predict.schema.json"


def text() -> str:
    """Text of the schema's file."""
    return json.dumps(predict_schema(), indent=2) + "\n"


def main() -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the file differs")
    if not parser.parse_args().check:
        FILE.write_text(text(), encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text():
        return 0
    print(f"{FILE} differs from the record types; run scripts/json_schema.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
