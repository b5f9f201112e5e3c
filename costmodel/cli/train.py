"""`costmodel train`: dataset -> trained profile, with its scores and those of baselines."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.collect_checks import check_form
from costmodel.cli.output import note, opened
from costmodel.errors import DatasetError, RequestError

HardwareName = Annotated[str, typer.Option("--hardware", metavar="NAME", help="Name of the profile to train.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of parallel processes.")]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="Train longer and score on every measured model, as for shipped profiles.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Directory of the dataset and the profile; default: the user's profiles."),
]
Added = Annotated[
    Path | None,
    typer.Option(
        "--add",
        metavar="FILE",
        help="Units (.parquet) to add to a trained profile; only the groups of rare operators are trained again.",
    ),
]


BaseName = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="PROFILE|none",
        help="Profile to learn the difference from; default: the shipped profile whose device is most alike.",
    ),
]


def train(
    hardware: HardwareName,
    base: BaseName = None,
    directory: Directory = None,
    add: Added = None,
    jobs: Jobs = 2,
    thorough: Thorough = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Train the profile NAME from its dataset (units.parquet, or the ledger of `costmodel collect`) and score it."""
    from costmodel.calibration.add_units import add_units
    from costmodel.calibration.base_profile import REFRESH, choose_base, own_base
    from costmodel.calibration.make_profile import make_profile, refresh
    from costmodel.profiles.profile import shipped_directory, user_directory
    from costmodel.training.dataset import read_frame
    from costmodel.training.kernel_models import THOROUGH, TrainingSettings

    check_form(hardware)
    place = directory or user_directory() / hardware
    if directory is None and (shipped_directory() / hardware / "card.json").exists():
        raise RequestError(f"{hardware!r} ships with costmodel, read-only; choose another name, or pass --directory")
    refreshes = (place / REFRESH / "ledger.sqlite").exists() and add is None
    source = place / REFRESH if refreshes else place
    if not (source / "units.parquet").exists() or refreshes:
        _export(source, hardware)
    settings = THOROUGH if thorough else TrainingSettings()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped")  # joblib replaces one whose memory has grown
        if refreshes:
            older = own_base(place, hardware)
            card = refresh(place, source, hardware, older, settings, lambda line: note(line, quiet), jobs)
        elif add is None:
            chosen = choose_base(base, hardware, read_frame(place / "units.parquet")[1].get("environment", {}))
            card = make_profile(place, hardware, settings, lambda line: note(line, quiet), jobs, chosen)
        else:
            card = add_units(place, _merged(place, add), settings, lambda line: note(line, quiet), jobs)
    with opened(None) as write:
        write(f"trained {hardware} on {card['units']['trained_on']} units: {place}\n")


def _merged(place: Path, added: Path) -> set[str]:
    """Merge units into a profile's dataset; returns their keys."""
    from collectors.whole_models.merge import merge_units
    from costmodel.training.dataset import read_frame

    keys = set(read_frame(added)[0]["key"])
    merge_units((place / "units.parquet", added), place / "units.parquet")
    return keys


def _export(place: Path, hardware: str) -> None:
    """Export a sweep's ledger as the dataset."""
    ledger = place / "ledger.sqlite"
    if not ledger.exists():
        raise DatasetError(f"{place}: no dataset there; run `costmodel collect --hardware {hardware}` first")
    from collectors.sweep.export import export

    export(ledger, place / "units.parquet")
