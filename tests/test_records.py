"""Files that others may have written: text that is no JSON, and paths that are no regular file, are refused at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import read_cases
from costmodel.calibration.models_file import read_measured
from costmodel.errors import CheckpointPlanError, CostmodelError, DatasetError, PlanError, ProfileError
from costmodel.memory.checkpoint_plan import CheckpointPlan
from costmodel.planning.plan import Plan
from costmodel.profiles import hosts
from costmodel.profiles.predictor_file import load_predictor
from costmodel.profiles.profile import Profile, load_profile
from costmodel.records import LONGEST_MESSAGE, Format, convert, one_line, open_regular, parse_json, read_regular
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


class Box(msgspec.Struct, forbid_unknown_fields=True):
    """A record with a list of sizes."""

    name: str
    sizes: list[Annotated[int, Meta(ge=1)]] = []


BOX = Format(Box, "a box", PlanError, "pack it again", schemas=(2, 3), most_bytes=40)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"name": "a", "sizes": [1, 0]}, "sizes[1]: expected int >= 1"),
        ({"name": 3}, "name: expected str, got int"),
        ({"sizes": []}, "object missing required field name"),
        ({"name": "a", "size": 1}, "object contains unknown field size"),
        ([1], "expected object, got array"),
    ],
)
def test_a_message_names_the_field_and_then_what_is_wrong_with_it(data: Any, said: str):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        convert(data, Box)


def test_data_that_fit_are_converted():
    assert convert({"name": "a", "sizes": [1, 2]}, Box) == Box("a", [1, 2])


@pytest.mark.parametrize("schema", [1, 4, None, "2"])
def test_another_schema_is_refused_before_the_content(schema: object):
    with pytest.raises(PlanError, match=r"^a.json: not a box of schema 2 or 3; pack it again$"):
        BOX.check({"schema": schema, "name": 3}, "a.json")
    with pytest.raises(PlanError, match=r"^a.json: not a box of schema 2 or 3; pack it again$"):
        BOX.check([schema], "a.json")


def test_a_known_schema_leads_to_the_content():
    with pytest.raises(PlanError, match=r"^a.json: not a box: object contains unknown field schema; pack it again$"):
        BOX.check({"schema": 3, "name": "a"}, "a.json")


def test_a_format_reads_a_file_of_at_most_its_size(tmp_path: Path):
    path = tmp_path / "box.json"
    anything = Format(Box, "a box", PlanError, "pack it again", most_bytes=20)
    path.write_text('{"name": "aaaaaaaa"}')  # 20 bytes
    assert anything.read(path) == Box("aaaaaaaa")
    path.write_text('{"name": "aaaaaaaaa"}')
    with pytest.raises(PlanError, match=rf"^{path}: cannot be read: it is larger than 0 MiB$"):
        anything.read(path)


@pytest.mark.parametrize("digits", [17, 18])
def test_integers_of_up_to_18_digits_are_read(digits: int):
    assert parse_json(f"[{'9' * digits}, -{'9' * digits}]") == [10**digits - 1, 1 - 10**digits]
    with pytest.raises(ValueError, match="an integer of 19 digits"):
        parse_json("1" * 19)


def test_constants_are_numbers_only_on_demand():
    assert parse_json("[Infinity, -Infinity]", constants=True) == [float("inf"), float("-inf")]
    assert str(parse_json("NaN", constants=True)) == "nan"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\x1b", r"a\tb\x1b"),
        ("'\n\"", "'\\n\""),
        ("a" * LONGEST_MESSAGE, "a" * LONGEST_MESSAGE),
        ("a" * LONGEST_MESSAGE + "b", "a" * LONGEST_MESSAGE + "..."),
    ],
)
def test_a_quoted_text_is_one_short_line(text: str, shown: str):
    assert one_line(text) == shown


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, most_bytes=100) == b"x" * 100
    with open_regular(path, most_bytes=100) as file:
        assert file.read() == b"x" * 100
    for read in (read_regular, open_regular):
        with pytest.raises(OSError, match="it is larger than 0 MiB"):
            read(path, most_bytes=99)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_that_hides_its_size_is_not_read_in_part():
    status = Path("/proc/self/status")
    assert status.stat().st_size == 0
    assert b"Name:" in read_regular(status)
    with pytest.raises(OSError, match="it is larger than 0 MiB"):
        read_regular(status, most_bytes=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "it is a directory, not a file"),
        (os.mkfifo, "it is a FIFO, not a file"),
        (lambda path: path.symlink_to("/dev/null"), "it is a device, not a file"),
    ],
)
def test_what_is_no_file_is_named(tmp_path: Path, make: Callable[[Path], object], said: str):
    make(tmp_path / "it")
    with pytest.raises(OSError, match=said) as caught:
        read_regular(tmp_path / "it")
    assert caught.value.filename == str(tmp_path / "it")
    with pytest.raises(OSError, match="impossible name for a file"):
        read_regular(tmp_path / "a\0b")
