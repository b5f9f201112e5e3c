"""Intervals without `--host`, judged on machines left out: a table of docs/accuracy.md, and the hosts of a card.

python scripts/hosts.py --update                        coverage by machine as CSV, and range and coverage in the card
python scripts/hosts.py --write docs/accuracy.md        the table of the CSV, into the document

Machines are those of the profile's measurements, that of the models measured later, and that of the user models, of
which the library models count here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section

from costmodel.calibration.host_range import coverage_by_machine, host_range
from costmodel.calibration.intervals import coverage
from costmodel.calibration.make_profile import write_card
from costmodel.calibration.measured_model import COLUMNS
from costmodel.profiles.profile import load_profile

DATA = Path("docs/data")
OUTPUT = DATA / "hosts_h200.csv"
BATCH_SIZES = (1, 32)
QUANTITIES = (
    ("latency", "eager"),
    ("latency", "default"),
    ("latency", "reduce-overhead"),
    ("speedup", "default"),
    ("speedup", "reduce-overhead"),
)
"""Columns of the table: a quantity and a mode."""
HEAD = ("machine", "launch us", *(f"{quantity}, `{mode}`" for quantity, mode in QUANTITIES))
BEGIN, END = "<!-- hosts: made by scripts/hosts.py -->", "<!-- end of hosts -->"


def user_rows(user: pd.DataFrame, probe_us: float) -> pd.DataFrame:
    """Library models among the user models, in the columns of `evaluate_case`."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for one in user[(user["half"] == "library") & user["mode_us"].notna()].to_dict("records"):
        row = rows.setdefault((one["model"], one["batch_size"]), {"batch_size": one["batch_size"]})
        name = COLUMNS[one["mode"]]
        row |= {f"eager{part}_us": one[f"eager{part}_us"] for part in ("", "_host", "_device")}
        row |= {f"{name}{part}_us": one[f"mode{part}_us"] for part in ("", "_host", "_device")}
        row |= {f"measured_{name}_us": one["measured_us"], "measured_eager_us": one["measured_eager_us"]}
        row |= {f"speedup/{one['mode']}": one["speedup"], f"measured_speedup/{one['mode']}": one["measured_speedup"]}
        row["host_speed"] = probe_us / one["launch_us"]
    return pd.DataFrame(rows.values())


def all_machines(profile: Path, probe_us: float) -> pd.DataFrame:
    """Measurements of every machine with their predictions for the profile's host, float32 and float16."""
    parts = {"measured": pd.read_csv(profile / "validation.csv"), "later": pd.read_csv(DATA / "unseen_h200.csv")}
    parts["user"] = user_rows(pd.read_csv(DATA / "user_models_h200.csv"), probe_us)
    parts["measured"]["machine"] = parts["measured"]["environment"].map("measured {}".format)
    return pd.concat([part.assign(machine=part.get("machine", name)) for name, part in parts.items()])


def update(hardware: str, output: Path) -> None:
    """Score every machine by the others, and put range and scores into the profile's card."""
    profile = load_profile(hardware)
    card = json.loads((profile.path / "card.json").read_text(encoding="utf-8"))
    probe_us, widths = card["host"]["probe_us"], card["intervals"]
    frame = all_machines(profile.path, probe_us)
    machines = sorted(float(probe_us / part.median()) for _, part in frame.groupby("machine")["host_speed"])
    range_us = host_range(machines)
    card["host"] |= {"machines_us": machines, "range_us": range_us}
    rows = coverage_by_machine(frame, probe_us, widths, "machine")
    validation = pd.read_csv(profile.path / "validation.csv")
    speeds = (1.0, *(probe_us / us for us in range_us))
    card["scores"] |= {"coverage": coverage(validation, speeds), "coverage_by_machine": rows}
    write_card(profile.path / "card.json", card)
    pd.DataFrame(rows).to_csv(output, index=False, float_format="%.5g")


def table(found: pd.DataFrame) -> str:
    """A row a machine, by launch time, and one in which every machine counts once; cells are batch 1; batch 32."""
    rows = []
    by_launch = found.groupby("machine")["launch_us"].first().sort_values()
    for number, (machine, launch_us) in enumerate(by_launch.items(), 1):
        chosen = found[found["machine"] == machine]
        rows.append([str(number), f"{launch_us:.1f}", *(_cell(chosen, *one) for one in QUANTITIES)])
    rows.append(["all, each counting once", "", *(_cell(found, *one) for one in QUANTITIES)])
    return markdown_table(HEAD, rows)


def _cell(found: pd.DataFrame, quantity: str, mode: str) -> str:
    chosen = found[(found["quantity"] == quantity) & (found["mode"] == mode)]
    shares = [chosen.loc[chosen["batch_size"] == size, "inside"] for size in BATCH_SIZES]
    return "; ".join(percent(share.mean(), 0) if len(share) else "-" for share in shares)


def main() -> None:
    """Score the machines, or print or write the table of earlier scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="score again and update the card")
    parser.add_argument("--hardware", default="nvidia-h200", help="profile of a GPU")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="coverage by machine, as CSV")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    if args.update:
        update(args.hardware, args.output)
    text = table(pd.read_csv(args.output))
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
