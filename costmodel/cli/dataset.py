"""`costmodel dataset merge|export|transfer`: make the dataset that a profile is trained on from ledgers and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.output import opened
from costmodel.errors import RequestError

Ledger = Annotated[Path, typer.Argument(metavar="LEDGER", help="Ledger of a sweep, ledger.sqlite.")]
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="Datasets of units (.parquet) or of whole models (.jsonl).")
]
Units = Annotated[Path, typer.Argument(metavar="UNITS", help="Units to transfer (.parquet).")]
Source = Annotated[
    Path, typer.Option("--from", metavar="FILE", help="Units of the same device, some of which both have measured.")
]
Target = Annotated[Path, typer.Option("--to", metavar="FILE", help="Units of the other device.")]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Dataset to write.")]
EveryProcess = Annotated[
    bool,
    typer.Option("--every-process", help="Keep the record of every process that measured a model, one process a file."),
]
_UNITS, _MODELS = ".parquet", ".jsonl"


def export(
    ledger: Ledger,
    output: Output,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Write the cases of a ledger as a dataset of units."""
    from collectors.sweep.export import export as export_ledger

    _require(output, (_UNITS,))
    _print(export_ledger(ledger, output), output)


def merge(
    files: Files,
    output: Output,
    every_process: EveryProcess = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Merge datasets of one kind of hardware; a later file's row replaces an earlier one's if it is trusted."""
    from collectors.whole_models.merge import merge_models, merge_units

    kind = files[0].suffix
    for path in (*files, output):
        _require(path, (_UNITS, _MODELS))
        if path.suffix != kind:
            raise RequestError(f"{path}: not a {kind} file like {files[0]}; units and whole models are not mixed")
    if every_process and kind == _UNITS:
        raise RequestError("--every-process is for whole models (.jsonl)")
    _print(merge_units(files, output) if kind == _UNITS else merge_models(files, output, every_process), output)


def transfer(
    units: Units,
    source: Source,
    target: Target,
    output: Output,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Write units measured on one device as another would measure them, by kernels that both have measured."""
    from costmodel.training.dataset import read_frame, write_frame
    from costmodel.training.tables import trusted
    from costmodel.training.transfer import transferred

    for path in (units, source, target, output):
        _require(path, (_UNITS,))
    rows, about = read_frame(units)
    there, of_target = read_frame(target)
    made = transferred(trusted(rows), trusted(read_frame(source)[0]), trusted(there))
    measured_on = about.get("environment", {}).get("device", "")
    environment = of_target.get("environment", {}) | {"by_ratio_from": measured_on}
    write_frame(made, output, {"environment": environment, "cases": len(made)})
    _print(len(made), output)


def _require(path: Path, kinds: tuple[str, ...]) -> None:
    if path.suffix not in kinds:
        raise RequestError(f"{path}: a dataset's name ends in {' or '.join(kinds)}")
    if not path.absolute().parent.is_dir():
        raise RequestError(f"{path}: there is no directory {path.parent}")


def _print(count: int, output: Path) -> None:
    with opened(None) as write:
        write(f"{count} cases in {output}\n")
