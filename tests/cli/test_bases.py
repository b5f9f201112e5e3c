"""Bases on the command line: what cannot be is refused in one line, before anything is measured or trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase
from costmodel.cli import main
from costmodel.profiles.card import CARD
from costmodel.profiles.profile import PREDICTOR, load_profile, user_directory
from tests.calibration.test_base_profile import based, copied
from tests.calibration.test_make_profile import write_units

GPU = {"device": "NVIDIA H100 80GB HBM3", "capability": "9.0"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["train", "--hardware", "mine", "--base", "nobody"],
            "no profile is called 'nobody'; give --base none, or one of",
        ),
        (["train", "--hardware", "mine", "--base", "mine"], "'mine' cannot be its own base"),
        (["train", "--hardware", "mine", "--base", "amd-epyc-2-threads"], "is of a CPU, these measurements are not"),
        (
            ["collect", "--device", "cpu", "--hardware", "new", "--refresh"],
            "no profile to refresh; run `costmodel train",
        ),
        (["collect", "--device", "cpu", "--hardware", "new", "--base", "nobody"], "no profile is called 'nobody'"),
        (
            ["collect", "--device", "cpu", "--hardware", "new", "--refresh", "--base", "none"],
            "--refresh takes the profile itself as the base; leave --base out",
        ),
    ],
)
def test_requests_that_cannot_be(home: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    directory = home / "mine"
    directory.mkdir()
    write_units(directory, 3, GPU)
    where = ["--directory", str(directory)] if arguments[0] == "train" else ["--budget", "5s"]
    assert main([*arguments, *where, "-q"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def said_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of a command that is refused."""
    assert main([*arguments, "-q"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def _without(directory: Path) -> None:
    shutil.rmtree(directory)


def _damaged(directory: Path) -> None:
    (directory / PREDICTOR).write_bytes(b"damaged")


def _of_another_schema(directory: Path) -> None:
    card = json.loads((directory / CARD).read_text())
    (directory / CARD).write_text(json.dumps(card | {"schema": 9}))


FAULTS = [
    (_without, "its base 'other' is missing; install it, or train again with --base none"),
    (_damaged, "predictor.safetensors: its SHA-256 is not the one in card.json"),
    (_of_another_schema, "other/card.json: not a profile summary of schema 1; train the profile again"),
]


@pytest.mark.parametrize(("break_it", "said"), FAULTS)
def test_a_prediction_by_a_profile_whose_base_is_at_fault(
    home: Path, break_it: Callable[[Path], None], said: str, capsys: pytest.CaptureFixture[str]
):
    user_directory().mkdir(parents=True)
    other = copied(user_directory(), "other")
    based(user_directory(), "mine", "other", load_profile("other").summary.predictor_sha256)
    break_it(other)
    assert said in said_in_one_line(["predict", "squeezenet1_1", "--hardware", "mine"], capsys)


@pytest.mark.parametrize(("break_it", "said"), [(_without, "no profile is called 'other'"), *FAULTS[1:]])
def test_training_with_a_base_at_fault(
    home: Path, break_it: Callable[[Path], None], said: str, capsys: pytest.CaptureFixture[str]
):
    user_directory().mkdir(parents=True)
    break_it(copied(user_directory(), "other"))
    directory = home / "mine"
    directory.mkdir()
    write_units(directory, 300, {"device": "cpu", "threads": "2"})
    arguments = ["train", "--hardware", "mine", "--base", "other", "--directory", str(directory)]
    assert said in said_in_one_line(arguments, capsys)
    assert not (directory / CARD).exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"device": "NVIDIA A100-SXM4-40GB"}, "but the profile mine is of NVIDIA H100 80GB HBM3"),
        (
            GPU | {"memory_bytes": str(94 << 30)},
            "of 94 GiB, but the profile mine is of NVIDIA H100 80GB HBM3 of 79 GiB",
        ),
    ],
)
@pytest.mark.parametrize("place", ["", "refresh"])
def test_a_ledger_of_another_device_than_its_profile(
    home: Path, place: str, environment: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
):
    directory = copied(home, "mine")
    card = json.loads((directory / CARD).read_text())
    (directory / CARD).write_text(json.dumps(card | {"environment": GPU}))
    (directory / "units.parquet").unlink(missing_ok=True)
    measured = directory / place
    measured.mkdir(exist_ok=True)
    write_units(measured, 300, environment)
    if place:
        _write_ledger(measured / "ledger.sqlite", 300, environment)
    arguments = ["train", "--hardware", "mine", "--base", "nvidia-h200", "--directory", str(directory)]
    before = (directory / CARD).read_bytes()
    assert said in said_in_one_line(arguments, capsys)
    assert (directory / CARD).read_bytes() == before


@pytest.mark.parametrize("options", [[], ["--refresh"]])
def test_measuring_for_the_profile_of_another_device(
    home: Path, options: list[str], capsys: pytest.CaptureFixture[str]
):
    user_directory().mkdir(parents=True)
    directory = copied(user_directory(), "mine")
    card = json.loads((directory / CARD).read_text())
    (directory / CARD).write_text(json.dumps(card | {"environment": GPU}))
    arguments = ["collect", "--device", "cpu", "--hardware", "mine", "--budget", "5s", *options]
    said = f"{directory}: measured on cpu, but the profile mine is of NVIDIA H100 80GB HBM3; "
    assert said in said_in_one_line(arguments, capsys)
    assert not (directory / "ledger.sqlite").exists()


def _write_ledger(path: Path, count: int, environment: dict[str, str]) -> None:
    """A ledger of as many units, all alike."""
    with Ledger(path, environment) as ledger:
        for number in range(count):
            case = UnitCase(f"graph {number}", "aten")
            ledger.finish(case, "ok", {"device_us": [1, 2, 3, 4, 5]})
