"""Profiles: found by name, chosen for this machine, refused when they are damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

from costmodel.errors import ProfileError, UnknownHardwareError
from costmodel.profiles import profile as profile_module
from costmodel.profiles.hosts import list_hosts
from costmodel.profiles.profile import (
    DEFAULT,
    list_profiles,
    load_profile,
    release_note,
    resolve_default,
    shipped_directory,
    user_directory,
)

SHIPPED = ("amd-epyc-2-threads", "intel-xeon-16-threads", "nvidia-h100", "nvidia-h200")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory of profiles, empty."""
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda name: str(tmp_path / name))
    return tmp_path / "costmodel" / "trained_models"


def write_card(directory: Path, **card: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "card.json"
    path.write_text(json.dumps({"schema": 1, **card}))
    return path


def test_the_shipped_profile_is_found():
    assert DEFAULT in list_profiles()
    profile = load_profile(DEFAULT)
    assert profile.path == shipped_directory() / DEFAULT
    assert profile.card["environment"]["device"] == "NVIDIA H200"
    assert profile.predictor is profile.predictor  # read once
    assert profile.predictor.multiprocessors == 132


@pytest.mark.parametrize(("name", "threads"), [("amd-epyc-2-threads", 2), ("intel-xeon-16-threads", 16)])
def test_the_shipped_profiles_of_cpus(name: str, threads: int):
    profile = load_profile(name)
    assert profile.on_cpu
    assert profile.card["environment"]["threads"] == str(threads)
    assert profile.predictor.multiprocessors == threads


@pytest.mark.parametrize("name", ["nvidia-h2000", "", "../nvidia-h200", "/etc"])
def test_an_unknown_name_lists_those_there_are(mine: Path, name: str):
    write_card(mine / "my-gpu")
    with pytest.raises(UnknownHardwareError) as caught:
        load_profile(name)
    assert str(caught.value) == f"no hardware profile is called {name!r}; there are: {', '.join(SHIPPED)}, my-gpu"


def test_without_any_profile_the_message_says_so(mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(profile_module, "shipped_directory", lambda: tmp_path / "none")
    with pytest.raises(UnknownHardwareError, match="there are: none"):
        load_profile("any")


def test_a_users_profiles_come_after_those_that_ship(mine: Path):
    write_card(mine / "another")
    assert list_profiles() == (*SHIPPED, "another")
    assert load_profile("another").path == mine / "another"


def test_a_users_directory_without_a_card_is_no_profile(mine: Path):
    (mine / "half").mkdir(parents=True)
    assert list_profiles() == SHIPPED


def test_the_users_directory_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_directory().is_relative_to(tmp_path)


@pytest.mark.parametrize("fault", ["a file", "a loop of links", "a name too long", "no permission"])
def test_a_home_that_cannot_be_entered_hides_no_shipped_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
):
    home = tmp_path / ("x" * 300 if fault == "a name too long" else "home")
    if fault == "a file":
        home.touch()
    elif fault == "a loop of links":
        home.symlink_to(home.name)
    elif fault == "no permission":
        home.mkdir(mode=0)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    with without_privileges():
        with pytest.raises(OSError, match=re.escape(str(user_directory()))):
            user_directory().stat()
        assert list_profiles() == SHIPPED
        assert load_profile(DEFAULT).name == DEFAULT
        assert list_hosts() == {}


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run the block as an ordinary user, whom closed directories keep out, though root runs the tests."""
    if os.geteuid():
        yield
        return
    if shipped_directory().stat().st_mode & 0o005 != 0o005:
        pytest.skip("root's own checkout")
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


FULL = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can be written, as on a full disk
sys.argv = ["costmodel", *sys.argv[1:]]
runpy.run_module("costmodel", run_name="__main__")
"""


@pytest.mark.slow
def test_a_full_temporary_directory_hides_no_shipped_profile(tmp_path: Path):
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FULL, "predict", "alexnet", "--format", "json"],
        cwd=shipped_directory().parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hardware"] == DEFAULT


def test_a_name_that_ships_means_what_ships(mine: Path):
    write_card(mine / DEFAULT)
    assert list_profiles() == SHIPPED
    assert load_profile(DEFAULT).path == shipped_directory() / DEFAULT


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"schema": 2}', '{"schema": "1"}', "{}", "\udcff", "[" * 100_000),
        *('{"schema": 1, "a": NaN}', '{"schema": 1, "a": -Infinity}', '{"schema": 1, "a": ' + "9" * 400 + "}"),
    ],
)
def test_a_damaged_card_or_one_of_another_schema_is_refused(mine: Path, text: str):
    write_card(mine / "mine").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ProfileError, match=r"card\.json: not a profile summary") as caught:
        load_profile("mine")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "costs",
    [
        None,
        {"eager_host": None},
        {"eager_host": {"start": "fast"}},
        {"eager_host": {"start": True}},
        {"eager_host": {"start": -1e9}},
        {"eager_host": {"start": 1e308}},
        {"eager_device": {"warm_launch": -0.1}},
        {"default_wall": {"gap": -0.1}},
    ],
)
def test_a_card_with_impossible_costs_is_refused(mine: Path, costs: object):
    write_card(mine / "mine", costs=costs)
    with pytest.raises(ProfileError, match=r"not a profile summary: costs.*: expected .*; train the profile again"):
        load_profile("mine")


def test_a_card_without_costs_is_refused_where_they_are_needed(mine: Path):
    write_card(mine / "mine", costs={})
    with pytest.raises(ProfileError, match="no usable costs 'eager_host'; train the profile again"):
        load_profile("mine").costs("eager_host")


def test_a_card_that_lacks_a_cost_is_refused(mine: Path):
    write_card(mine / "mine", costs={"eager_host": {"start": 1}})
    profile = load_profile("mine")
    assert profile.costs("eager_host") == {"start": 1.0}
    with pytest.raises(ProfileError, match="costs 'eager_host' lack 'view'"):
        profile.costs("eager_host", ("start", "view"))


def test_intervals_are_narrower_for_a_host_that_is_known(mine: Path):
    write_card(mine / "mine", intervals={"latency": {"eager": 0.3}, "latency_calibrated": {"eager": 0.1}})
    profile = load_profile("mine")
    assert profile.intervals("latency") == {"eager": 0.3}
    assert replace(profile, host_calibrated=True).intervals("latency") == {"eager": 0.1}


def test_intervals_are_read_by_kind(mine: Path):
    write_card(mine / "mine", intervals={"latency": {"eager": 0.1}})
    profile = load_profile("mine")
    assert profile.intervals("latency") == {"eager": 0.1}
    assert replace(profile, host_calibrated=True).intervals("latency") == {"eager": 0.1}  # of one machine: the same
    with pytest.raises(ProfileError, match="no usable intervals 'speedup'"):
        profile.intervals("speedup")


def test_intervals_cover_a_range_of_hosts_unless_the_host_is_known(mine: Path):
    """A launch takes 5 us on the profile's host; half as long and four times as long at the ends of the range."""
    write_card(mine / "mine", host={"probe_us": 5.0, "range_us": [2.5, 20.0]})
    profile = load_profile("mine")
    assert profile.host_speeds == (1.0, 0.25, 2.0)
    assert replace(profile, host_speed=0.8, host_calibrated=True).host_speeds == (0.8,)


def test_a_profile_of_one_host_covers_that_host(mine: Path):
    write_card(mine / "mine", host={"probe_us": 5.0})
    assert load_profile("mine").host_speeds == (1.0,)


@pytest.mark.parametrize(
    "curve",
    [
        {"distances": [1.0, 0.5], "factors": [1.0, 2.0]},
        {"distances": [0.5, 1.0], "factors": [2.0, 1.0]},
        {"distances": [0.5], "factors": [1.0, 2.0]},
        {"distances": [], "factors": []},
        {"distances": [0.5], "factors": [-1.0]},
        {"distances": [0.5]},
        [1.0],
    ],
)
def test_an_impossible_error_curve_is_refused(mine: Path, curve: object):
    write_card(mine / "mine", error_curves={"conv": curve})
    with pytest.raises(ProfileError, match=r"error_curves.*; train the profile again"):
        load_profile("mine")


@pytest.mark.parametrize("width", [-0.1, 21.0, 1e6])
def test_impossible_intervals_are_refused(mine: Path, width: float):
    write_card(mine / "mine", intervals={"latency": {"eager": width}})
    with pytest.raises(
        ProfileError, match=r"not a profile summary: intervals.*: expected float .*; train the profile again"
    ):
        load_profile("mine")


def test_a_predictor_that_the_card_does_not_know_is_refused(mine: Path):
    write_card(mine / "mine")
    shutil.copy(shipped_directory() / DEFAULT / "predictor.safetensors", mine / "mine")
    with pytest.raises(ProfileError, match="SHA-256"):
        _ = load_profile("mine").predictor


@pytest.mark.parametrize(
    ("device", "profile", "why"),
    [
        (None, DEFAULT, "the default; no GPU here"),
        ("NVIDIA H200", DEFAULT, "this machine has an NVIDIA H200"),
        ("Acme X1", "acme-x1", "this machine has an Acme X1"),
        ("Acme-X1 (MIG 1g.5gb)", "acme-x1-mig-1g-5gb", "this machine has an Acme-X1 (MIG 1g.5gb)"),
        (
            "NVIDIA H200 NVL",
            DEFAULT,
            "measured on an NVIDIA H200; this machine's NVIDIA H200 NVL may have another memory",
        ),
        ("NVIDIA T4", DEFAULT, "the default; there is no profile of this machine's NVIDIA T4"),
    ],
)
def test_which_profile_is_taken_where(
    mine: Path, monkeypatch: pytest.MonkeyPatch, device: str | None, profile: str, why: str
):
    for name in ("acme-x1", "acme-x1-mig-1g-5gb"):
        write_card(mine / name)
    monkeypatch.setattr(profile_module, "_this_device", lambda: device)
    found, reason = resolve_default()
    assert found == profile
    assert reason.startswith(why)


def test_another_release_of_torch_than_the_profiles_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch):
    profile = load_profile(DEFAULT)
    for installed, said in (("2.11.1", False), ("2.11.0+cpu", False), ("2.12.0", True), ("3.0", True)):
        monkeypatch.setattr("importlib.metadata.version", lambda _, installed=installed: installed)
        line = release_note(profile)
        assert bool(line) == said
        assert not said or line.startswith("nvidia-h200 was measured with torch 2.11, and ")
        assert "\n" not in line
