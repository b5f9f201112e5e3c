"""Plans kept on disk: read again as they were written, and absent where anything differs or is damaged."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel.planning import kept_plans
from costmodel.planning.kept_plans import DIRECTORY, KeptPlan, keep_plan, key_of, load_kept
from costmodel.planning.plan import Plan
from costmodel.profiles.profile import Profile
from tests.execution.test_planned_module import plan_for
from tests.support.hostile_json import HOSTILE, leaves, text_with

KEY = "ab" * 32


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return plan_for(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), (torch.ones(2, 3),))


def file_of(directory: Path) -> Path:
    return directory / DIRECTORY / f"{KEY}.json"


def test_what_is_kept_is_found(plan: Plan, tmp_path: Path):
    assert load_kept(KEY) is None
    found = KeptPlan(plan, {"plan": 1.0, "eager": 2.5}, {"plan": 3.0}, {"eager": 0.25})
    keep_plan(KEY, found)
    assert load_kept(KEY) == found
    assert load_kept("cd" * 32) is None
    assert [path.name for path in (tmp_path / DIRECTORY).iterdir()] == [f"{KEY}.json"]


class Bomb:
    def __reduce__(self):
        return (Path("loaded").touch, ())


DAMAGED = {
    "empty": b"",
    "cut off": b'{"schema": 1, "key": "',
    "no JSON": b"\x80\x04K\x01.",
    "a pickle": pickle.dumps(Bomb()),
    "another kind": b"[]",
    "NaN": b'{"schema": NaN}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_counts_as_absent_and_is_written_anew(plan: Plan, tmp_path: Path, monkeypatch, content: bytes):
    monkeypatch.chdir(tmp_path)
    keep_plan(KEY, KeptPlan(plan))
    file_of(tmp_path).write_bytes(content)
    assert load_kept(KEY) is None
    assert not Path("loaded").exists()
    keep_plan(KEY, KeptPlan(plan))
    assert load_kept(KEY) == KeptPlan(plan)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("key", "cd" * 32),
        ("plan", {}),
        ("times_ms", {"plan": -1.0}),
        ("times_ms", {"plan": "1"}),
        ("measured_ms", None),
        ("further", 1),
    ],
)
def test_a_file_with_another_content_counts_as_absent(plan: Plan, tmp_path: Path, field: str, value: object):
    keep_plan(KEY, KeptPlan(plan))
    data = json.loads(file_of(tmp_path).read_text())
    file_of(tmp_path).write_text(json.dumps(data | {field: value}))
    assert load_kept(KEY) is None


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_values_raise_nothing(plan: Plan, tmp_path: Path, hostile: str):
    keep_plan(KEY, KeptPlan(plan, {"plan": 1.0}))
    data = json.loads(file_of(tmp_path).read_text())
    for place in leaves(data):
        file_of(tmp_path).write_text(text_with(data, place, hostile))
        assert isinstance(load_kept(KEY), KeptPlan | None)


def test_a_directory_in_place_of_the_file_or_no_room_is_no_error(plan: Plan, tmp_path: Path, monkeypatch):
    file_of(tmp_path).mkdir(parents=True)
    keep_plan(KEY, KeptPlan(plan))
    assert load_kept(KEY) is None
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kept_plans, "_path", lambda key: tmp_path / "file" / key)
    keep_plan(KEY, KeptPlan(plan))
    assert load_kept(KEY) is None


def test_the_key_depends_on_all_that_planning_depends_on(h200: Profile, monkeypatch):
    def key(graph="g", profile=h200, device="cpu", **wanted):
        return key_of(graph, profile, device, {"calls": 1.0} | wanted)

    found = [
        key(),
        key("h"),
        key(profile=replace(h200, card={**h200.card, "note": 1})),
        key(profile=replace(h200, host_speed=0.5)),
        key(device="NVIDIA H100"),
        key(calls=2.0),
    ]
    assert key() == found[0]
    with monkeypatch.context() as patched:
        patched.setattr(torch, "__version__", "9.9")
        found.append(key())
    with monkeypatch.context() as patched:
        patched.setattr(kept_plans, "_source_hash", lambda: "other")
        found.append(key())
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = not before
    try:
        found.append(key())
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert len(set(found)) == len(found) == 9
