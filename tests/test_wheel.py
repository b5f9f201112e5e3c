"""Files of the shipped profiles that travel in the wheel: all that predictions read, and no dataset."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from costmodel.profiles.card import CARD
from costmodel.profiles.profile import PREDICTOR, WHOLE_MODELS

ROOT = Path(__file__).parent.parent
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
PROFILES = sorted(path.parent.name for path in (ROOT / "trained_models").glob(f"*/{CARD}"))


def test_the_wheel_holds_what_predictions_read_of_every_profile():
    wanted = [
        f"trained_models/{profile}/{file}"
        for profile in PROFILES
        for file in (CARD, PREDICTOR, WHOLE_MODELS)
        if (ROOT / "trained_models" / profile / file).exists()
    ]
    assert WHEEL["force-include"] == {path: f"costmodel/{path}" for path in wanted}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_predictor_is_light(profile: str):
    assert (ROOT / "trained_models" / profile / PREDICTOR).stat().st_size <= 26e6


def test_the_wheel_is_light():
    assert sum((ROOT / path).stat().st_size for path in WHEEL["force-include"]) <= 40e6  # and 3 MB of code
