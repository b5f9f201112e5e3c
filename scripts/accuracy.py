"""Tables of docs/accuracy.md from the shipped profiles' files: models, machines, kernels, CPUs, ablations.

python scripts/accuracy.py --write docs/accuracy.md
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from accuracy_tables import (
    ablation_table,
    cause_table,
    compile_table,
    cpu_table,
    kernel_table,
    known_errors,
    machine_table,
    user_table,
)
from markdown_tables import percent, replace_section

from costmodel.profiles.profile import list_profiles, load_profile, shipped_directory


def sections(hardware: str, ablations: Path) -> dict[str, str]:
    """Name of a section of the document -> its text."""
    profile = load_profile(hardware)
    scores = profile.card["scores"]
    validation = pd.read_csv(profile.path / "validation.csv")
    shipped = [load_profile(name) for name in list_profiles() if (shipped_directory() / name).is_dir()]
    covered = " and ".join(f"{percent(share, 0)} (`{mode}`)" for mode, share in scores["coverage"].items())
    return {
        "models": user_table(validation),
        "intervals": f"90 % prediction intervals of speedup, uncalibrated host, cover {covered} of these measurements.",
        "machines": machine_table(validation),
        "kernels": kernel_table(scores["kernels"]),
        "CPUs": cpu_table([one.card for one in shipped if one.on_cpu]),
        "compile times": compile_table(scores["compile"]),
        "compile causes": cause_table(profile.card["costs"]),
        "ablations": ablation_table(pd.read_csv(ablations)),
        "known errors": known_errors(validation),
    }


def marks(section: str) -> tuple[str, str]:
    """Marks around a section of the document."""
    return f"<!-- {section}: made by scripts/accuracy.py -->", f"<!-- end of {section} -->"


def write(document: Path, texts: Mapping[str, str]) -> None:
    """Put each text between its marks."""
    for section, text in texts.items():
        document.write_text(replace_section(document, text, *marks(section)), encoding="utf-8")


def main() -> None:
    """Print the tables, or write them into the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="nvidia-h200", help="profile of a GPU")
    parser.add_argument("--ablations", type=Path, default=Path("docs/data/ablations_h200.csv"))
    parser.add_argument("--write", type=Path, metavar="FILE", help="put each table between its marks in this document")
    args = parser.parse_args()
    texts = sections(args.hardware, args.ablations)
    if args.write:
        write(args.write, texts)
    else:
        print("\n\n".join(texts.values()))


if __name__ == "__main__":
    main()
