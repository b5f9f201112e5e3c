"""Bases: which profile is the most alike, and which are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from costmodel.calibration.base_profile import NONE, BaseProfile, choose_base, most_alike, own_base
from costmodel.errors import CostmodelError
from costmodel.predictor.predictor import Base
from costmodel.profiles.predictor_file import save_predictor
from costmodel.profiles.profile import OWN_BASE, PREDICTOR, Profile, load_profile, shipped_directory, user_directory
from tests.support.predictors import small_predictor

H100 = {"device": "NVIDIA H100 80GB HBM3", "capability": "9.0", "torch": "2.11.0+cu130", "driver": "580.159.04"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    user_directory().mkdir(parents=True)
    return user_directory()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (H100, "nvidia-h200"),
        ({"device": "NVIDIA A100", "capability": "8.0"}, "nvidia-h200"),
        ({"device": "cpu", "threads": "3"}, "amd-epyc-2-threads"),
        ({"device": "cpu", "threads": "64"}, "intel-xeon-16-threads"),
    ],
)
def test_the_most_alike_shipped_profile(environment: dict[str, str], expected: str):
    assert most_alike("mine", environment) == expected


def test_a_shipped_profile_is_trained_from_nothing_unless_a_base_is_given():
    assert most_alike("nvidia-h200", {"device": "NVIDIA H200", "capability": "9.0"}) is None


def test_no_base():
    assert choose_base(NONE, "mine", H100) is None


@pytest.mark.parametrize(
    ("given", "environment", "match"),
    [
        ("nvidia-h300", H100, "no profile is called 'nvidia-h300'; give --base none, or one of: "),
        ("mine", H100, "'mine' cannot be its own base"),
        (
            "nvidia-h100",
            H100,
            "'nvidia-h100' has the base 'nvidia-h200' itself, and cannot be one; give --base nvidia-h2",
        ),
        ("amd-epyc-2-threads", H100, "the base 'amd-epyc-2-threads' is of a CPU, these measurements are not"),
        (
            "nvidia-h200",
            {"device": "cpu", "threads": "2"},
            "the base 'nvidia-h200' is of a GPU, these measurements are",
        ),
    ],
)
def test_bases_that_cannot_be_are_refused_in_one_line(given: str, environment: dict[str, str], match: str):
    with pytest.raises(CostmodelError, match=match) as caught:
        choose_base(given, "mine", environment)
    assert "\n" not in str(caught.value)


def copied(home: Path, name: str) -> Path:
    """A user's profile with the small predictor."""
    directory = home / name
    shutil.copytree(shipped_directory() / "intel-xeon-16-threads", directory)
    card = json.loads((directory / "card.json").read_text())
    card["predictor_sha256"] = save_predictor(small_predictor(), directory / PREDICTOR)
    (directory / "card.json").write_text(json.dumps(card))
    return directory


def based(home: Path, name: str, base: str, sha256: str) -> Profile:
    """A user's profile with a base."""
    directory = copied(home, name)
    small = small_predictor()
    predictor = type(small)(small.groups, small.roofline, small.multiprocessors, Base(base, sha256, small))
    card = json.loads((directory / "card.json").read_text())
    card["predictor_sha256"] = save_predictor(predictor, directory / PREDICTOR)
    (directory / "card.json").write_text(json.dumps(card))
    return load_profile(name)


def test_a_base_is_found_and_one_that_is_missing_or_was_trained_again_is_refused(home: Path):
    other = copied(home, "other")
    sha256 = load_profile("other").summary.predictor_sha256
    found = based(home, "mine", "other", sha256).predictor
    assert found.base is not None
    assert (found.base.name, len(found.base.predictor.groups)) == ("other", 1)
    for name, kept, match in (
        ("second", "0" * 64, "its base 'other' was trained again since; train this profile again"),
        ("third", sha256, "its base 'other' is missing; install it, or train again with --base none"),
    ):
        profile = based(home, name, "other", kept)
        if name == "third":
            shutil.rmtree(other)
        with pytest.raises(CostmodelError, match=match) as caught:
            _ = profile.predictor
        assert "\n" not in str(caught.value)


def test_a_damaged_base_is_refused(home: Path):
    other = copied(home, "other")
    profile = based(home, "mine", "other", load_profile("other").summary.predictor_sha256)
    (other / PREDICTOR).write_bytes(b"damaged")
    with pytest.raises(CostmodelError, match=r"other/predictor\.safetensors: its SHA-256 is not the one in card\.json"):
        _ = profile.predictor


def test_a_refresh_keeps_the_profile_from_before_as_its_base(home: Path):
    directory = copied(home, "mine")
    before = (directory / PREDICTOR).read_bytes()
    first = own_base(directory, "mine")
    assert (directory / OWN_BASE).read_bytes() == before
    assert first.base.sha256 == hashlib.sha256(before).hexdigest()
    (directory / PREDICTOR).write_bytes(before + b"refreshed")
    assert own_base(directory, "mine").base.sha256 == first.base.sha256  # a second refresh starts from the same


def test_a_refresh_without_a_profile_is_refused(home: Path):
    with pytest.raises(CostmodelError, match="no profile to refresh; run `costmodel train --hardware mine` first"):
        own_base(home / "mine", "mine")


def test_the_summary_says_what_changed_and_costs_are_the_bases_with_wider_intervals():
    profile = load_profile("nvidia-h200")
    base = BaseProfile(profile, Base("nvidia-h200", "a" * 64, small_predictor()))
    newer = {**profile.environment, "torch": "2.13.0+cu130", "driver": "590.0"}
    assert base.describe(newer) == {
        "name": "nvidia-h200",
        "device": "NVIDIA H200",
        "changed": {"torch": ["2.11.0+cu130", "2.13.0+cu130"], "driver": ["580.159.04", "590.0"]},
    }
    found, others = base.whole_models(lambda _: None)
    assert found["costs"] == profile.card["costs"]
    width, wider = (part["intervals"]["latency"]["eager"] for part in (profile.card, found))
    assert wider == pytest.approx(1.5 * width)
    assert others.describe() == {}
