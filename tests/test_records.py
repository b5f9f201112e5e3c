"""Files that others may have written: text that is no JSON, and paths that are no regular file, are refused at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import read_cases
from costmodel.calibration.models_file import read_measured
from costmodel.errors import CheckpointPlanError, CostmodelError, DatasetError, PlanError, ProfileError
from costmodel.memory.checkpoint_plan import CheckpointPlan
from costmodel.planning.plan import Plan
from costmodel.profiles import hosts
from costmodel.profiles.predictor_file import load_predictor
from costmodel.profiles.profile import Profile, load_profile
from costmodel.records import parse_json
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.training.dataset import read_frame
from tests.support.hostile_json import DEEP, LONG

HERE = {"device": "test"}


def load_card(path: Path) -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("costmodel.profiles.profile.user_directory", lambda: path.parent.parent)
        return load_profile(path.parent.name)


def read_hosts(path: Path) -> Mapping[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "hosts_file", lambda: path)
        return hosts.list_hosts()


READERS: Mapping[str, tuple[Callable[[Path], object], type[CostmodelError]]] = {
    "hosts.json": (read_hosts, ProfileError),
    "card.json": (load_card, CostmodelError),  # a loop of links is no profile; anything else is a damaged one
    "plan.json": (Plan.load, PlanError),
    "checkpoint.json": (CheckpointPlan.load, CheckpointPlanError),
    "predictor.safetensors": (load_predictor, ProfileError),
    "whole_models.safetensors": (ResidualModel.load, ProfileError),
    "models.jsonl": (read_measured, DatasetError),
    "units.parquet": (read_frame, DatasetError),
    "ledger.sqlite": (lambda path: Ledger(path, HERE), DatasetError),
    "cases.jsonl": (lambda path: list(read_cases(path)), DatasetError),
}
KINDS: Mapping[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "directory": Path.mkdir,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "loop of links": lambda path: path.symlink_to(path.name),
    "empty file": Path.touch,
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00" * 100),
    "huge file": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


EMPTY = {("ledger.sqlite", "empty file"), ("cases.jsonl", "empty file")}
"""Files without a byte that are what they should be."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in READERS for kind in KINDS if kind != "huge file" and (name, kind) not in EMPTY],
)
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, name: str, kind: str):
    read, error = READERS[name]
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    KINDS[kind](path)
    with pytest.raises(error) as caught:  # a reader that waits for a writer is ended by faulthandler's deadline
        read(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value) or "no hardware profile is called 'mine'" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READERS if name != "ledger.sqlite"])
def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path, name: str):
    read, error = READERS[name]
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    KINDS["huge file"](path)
    with pytest.raises(error, match=rf"{re.escape(name)}: .*it is larger than \d+ MiB"):
        read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (LONG, "an integer of 10000 digits"),
        (f"-{LONG}", "an integer of 10001 digits"),
        ("1e999", "1e999 is out of range"),
        ("NaN", "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' occurs twice"),
        (b'"\xff"', "not text in UTF-8"),
        ('"\\ud800"', "not text in UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("{} {}", "Extra data"),
        ("", "Expecting value"),
        ('{"\\u001b[2J\\n": 1, "\\u001b[2J\\n": 1}', r"the key '\x1b[2J\n' occurs twice"),
    ],
)
def test_what_is_no_json_is_refused_in_one_line(text: str | bytes, said: str):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        parse_json(text)
    assert str(caught.value).isprintable()


def test_names_of_any_language_and_characters_of_two_halves_are_read():
    assert parse_json('{"\\u00e9": "\\ud83d\\ude00", "a": -0.0, "b": 123456789012345678}') == {
        "\N{LATIN SMALL LETTER E WITH ACUTE}": "\N{GRINNING FACE}",
        "a": 0.0,
        "b": 123456789012345678,
    }
