"""README's table of results, a line a claim, made of what was measured.

python scripts/results.py --write README.md
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section
from memory_rows import Row
from plan_tables import gain, latest

from costmodel.calibration.scores import score
from costmodel.profiles.profile import load_profile

DOCS = Path(__file__).parent.parent / "docs" / "data"
BEGIN, END = "<!-- results: made by scripts/results.py -->", "<!-- end of results -->"
HEAD = ("on an NVIDIA H200", "", "cases")
MODES = ("default", "reduce-overhead")


def table(card: dict[str, Any], docs: Path = DOCS) -> str:
    """The claims, from the card of a profile and the files of a directory."""
    return markdown_table(
        HEAD, [*_families_left_out(card["scores"]), *_unseen(docs), _intervals(card), *_plans(docs), *_costs(docs)]
    )


def _error(found: dict[str, Any]) -> list[str]:
    said = f"{percent(found['mean_error'])} mean error, {100 * found['within_10']:.0f} % within 10 %"
    return [f"{said}; a constant: {percent(found['constant_mean_error'])}", str(int(found["cases"]))]


def _families_left_out(scores: dict[str, Any]) -> list[list[str]]:
    cases_of = "float32, batch 1 and 32"
    found = {row["mode"]: row for row in scores["models"] if row["cases_of"] == cases_of}
    return [[f"speedup of `{mode}`, families left out, {cases_of}", *_error(found[mode])] for mode in MODES]


def _unseen(docs: Path) -> list[list[str]]:
    frame = pd.read_csv(docs / "unseen_h200.csv")
    models = frame["model"].nunique()
    found = {mode: score(frame, mode, "probed_speedup") for mode in MODES}
    return [[f"speedup of `{mode}`, {models} models never told of", *_error(found[mode])] for mode in MODES]


def _intervals(card: dict[str, Any]) -> list[str]:
    shares = [card["scores"]["coverage"][mode] for mode in MODES]
    cases = max(int(row["cases"]) for row in card["scores"]["models"])
    return ["intervals of 90 % hold", " and ".join(f"{100 * share:.0f} %" for share in shares), str(cases)]


def _plans(docs: Path) -> list[list[str]]:
    rows = []
    for name, what in (("compared", "the study's models and six more"), ("others", "models nothing was decided by")):
        lines = (docs / f"{name}_h200.jsonl").read_text(encoding="utf-8").splitlines()
        gains = [gain(record) for record in latest([one for one in map(json.loads, lines) if gain(one)])]
        known = [value for value in gains if value]
        said = f"{statistics.geometric_mean(known):.2f} times as fast (geometric mean), at least {min(known):.2f}"
        rows.append([f"plans against the best mode of torch.compile, {what}", said, str(len(known))])
    return rows


def _costs(docs: Path) -> list[list[str]]:
    memory = [Row(**row) for row in json.loads((docs / "memory_h200.json").read_text(encoding="utf-8"))["rows"]]
    kinds = ("inference", "training")
    worst = [percent(max(abs(row.error) for row in memory if row.kind == kind)) for kind in kinds]
    cost = json.loads((docs / "predict_cost.json").read_text(encoding="utf-8"))
    sweep = json.loads((docs / "sweep_h200.json").read_text(encoding="utf-8"))
    seconds, peak = cost["seconds"]["ratio"], cost["peak_mib"]["ratio"]
    importing = f"{seconds:.2f} times the time and {peak:.2f} times the memory of importing torch and torchvision"
    looping = f"{sweep['ratio']:.1f} times the units a minute of a loop with torch.compile and `do_bench`"
    return [
        [
            "peak memory of inference and training",
            " and ".join(f"within {it}" for it in worst),
            str(len(memory)),
        ],
        ["a cold `costmodel predict densenet121`, on a CPU", importing, f"{cost['runs']} runs"],
        ["a sweep of `costmodel collect`", looping, f"{sweep['sample']['units']:,} units"],
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks there")
    args = parser.parse_args()
    text = table(load_profile("nvidia-h200").card)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
    else:
        print(text)
