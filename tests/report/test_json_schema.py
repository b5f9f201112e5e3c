"""The published JSON schema: made from the record types, and what `predict` prints obeys it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import json_schema
import jsonschema
import pytest
import torch
from torch import nn

import costmodel
from costmodel.report import Report, render
from costmodel.report.types import SCHEMA_ID
from tests.support import sample_reports

PUBLISHED = json.loads(json_schema.FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(PUBLISHED)


def test_the_published_file_is_made_from_the_record_types() -> None:
    assert json_schema.FILE.read_text(encoding="utf-8") == json_schema.text(), "run scripts/json_schema.py"


def test_it_is_a_schema_and_describes_keys() -> None:
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    report = PUBLISHED["$defs"]["Report"]["properties"]
    assert report["best_mode"]["description"] == "the mode of lowest latency."
    mode = PUBLISHED["$defs"]["ModePrediction"]["properties"]
    assert mode["speedup_low"]["description"] == mode["speedup_high"]["description"]
    assert PUBLISHED["$id"] == SCHEMA_ID


@pytest.mark.parametrize("kind", ["report", "with_breaks", "given_up", "failing"])
def test_samples_obey_it(kind: str) -> None:
    VALIDATOR.validate(json.loads(render(getattr(sample_reports, kind)(), "json")))


def test_a_list_obeys_it() -> None:
    VALIDATOR.validate(json.loads(render(sample_reports.cases(), "json")))


@pytest.fixture(scope="module")
def predictions() -> list[Report]:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
    inputs = (torch.zeros(2, 3, 8, 8),)
    gpu, cpu = "nvidia-h200", "amd-epyc-2-threads"
    return [
        costmodel.predict(net, inputs, hardware=name, explain=explain, check=False)
        for name, explain in ((gpu, True), (cpu, False))
    ]


def test_real_predictions_obey_it(predictions: list[Report]) -> None:
    for report in predictions:
        record = json.loads(render(report, "json"))
        assert record["$schema"] == SCHEMA_ID
        VALIDATOR.validate(record)
    assert "explanation" in predictions[0].to_dict()


def dict_keys(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all keys of objects in JSON."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(value, dict):
            yield (*place, key)
        yield from dict_keys(inner, (*place, key))


OPTIONAL = {("modes", "default"), ("modes", "reduce-overhead"), ("explanation",)}


@pytest.mark.parametrize("place", sorted(set(dict_keys(sample_reports.with_breaks().to_dict())) - OPTIONAL, key=str))
def test_a_missing_key_or_a_wrong_type_is_found(place: tuple[Any, ...]) -> None:
    record = sample_reports.with_breaks().to_dict()
    for change in ("drop", "replace"):
        changed = copy.deepcopy(record)
        parent = changed
        for key in place[:-1]:
            parent = parent[key]
        if change == "drop":
            del parent[place[-1]]
        else:
            parent[place[-1]] = object
        assert not VALIDATOR.is_valid(changed), f"{change} {place}"


def test_further_keys_are_allowed() -> None:
    VALIDATOR.validate(sample_reports.report().to_dict() | {"later": 1})


def test_check_says_whether_the_file_is_current(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["json_schema.py", "--check"])
    assert json_schema.main() == 0
    old = tmp_path / "old.json"
    old.write_text("{}")
    monkeypatch.setattr(json_schema, "FILE", old)
    assert json_schema.main() == 1
    assert old.read_text() == "{}"
    monkeypatch.setattr("sys.argv", ["json_schema.py"])
    assert json_schema.main() == 0
    assert json.loads(old.read_text()) == PUBLISHED
