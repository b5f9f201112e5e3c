"""Bases on the command line: what cannot be is refused in one line, before anything is measured or trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.cli import main
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
