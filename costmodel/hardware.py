"""Hardware profiles: what was measured on a device, as data in a directory of its own.

A profile is a directory `trained_models/NAME` with `card.json` (what it is, its host costs, its scores, hashes of the
other files), `predictor.safetensors`, `whole_models.safetensors`, and the datasets that they were made of. Profiles
that ship with the package are read-only; those that a user makes lie in the user's data directory and are found by
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from costmodel import checks
from costmodel.checks import checked
from costmodel.discrepancy import Discrepancy, none_found
from costmodel.errors import ProfileError, UnknownHardwareError
from costmodel.files import read_json
from costmodel.predictor import Predictor
from costmodel.predictor_file import load_predictor

CARD_SCHEMA = 1
PREDICTOR, WHOLE_MODELS = "predictor.safetensors", "whole_models.safetensors"
"""Files of a profile: what tells kernels, and what whole models tell of others beyond that."""
DEFAULT = "nvidia-h200"
HOST_COSTS = frozenset({"eager_host", "default_host", "graph_host", "compile"})
"""Tables of costs that are the host's; the rest is the device's, or relative to these."""

LARGEST: Mapping[str, float] = {"costs": 1e9, "intervals": 20.0}
"""What no number in these sections of a card exceeds: a thousand seconds, and a factor of 10^8."""
TOLD = "_told"
"""Ends the names of intervals for a host whose speed is known."""


@dataclass(frozen=True)
class Profile:
    """One hardware profile; its other files are read on first use.

    Attributes:
        name: what it is called.
        path: the folder that it lies in.
        card: what its card says.
        host_speed: of the host that is predicted for, against the profile's own; its costs are scaled by it.
        host_told: whether that is known of the host, and not only the best guess.
    """

    name: str
    path: Path
    card: Mapping[str, Any]
    host_speed: float = 1.0
    host_told: bool = False

    @cached_property
    def predictor(self) -> Predictor:
        """The trained predictor.

        Raises:
            ProfileError: its file is not the one that the card was written with, or is damaged.
        """
        return load_predictor(self.path / PREDICTOR, str(self.card.get("predictor_sha256")))

    @cached_property
    def discrepancy(self) -> Discrepancy:
        """What measured models tell of others; nothing in profiles that were made before this was learnt.

        Raises:
            ProfileError: its file is not the one that the card was written with, or is damaged.
        """
        if "whole_models_sha256" not in self.card:
            return none_found()
        return Discrepancy.load(self.path / WHOLE_MODELS, str(self.card["whole_models_sha256"]))

    def using(self, predictor: Predictor) -> Profile:
        """The profile with another predictor in place of its own."""
        other = replace(self)
        other.__dict__["predictor"] = predictor  # where the cached property would put its own
        return other

    @property
    def environment(self) -> Mapping[str, object]:
        """What the profile was measured in; empty if its card does not tell."""
        found = self.card.get("environment")
        return found if isinstance(found, Mapping) else {}

    @property
    def on_cpu(self) -> bool:
        """Whether the profile is of a CPU, which launches nothing and has no cuDNN."""
        return self.environment.get("device") == "cpu"

    @property
    def capability(self) -> str:
        """The GPU's compute capability, such as `9.0`; empty for a CPU."""
        return str(self.environment.get("capability", ""))

    def costs(self, name: str, needed: Sequence[str] = ()) -> Mapping[str, float]:
        """A table of fitted costs from the card (`eager_host`, `default_wall`, ...); microseconds, but for ratios.

        Raises:
            ProfileError: the card has no such table, or one that lacks a cost that is needed.
        """
        table = self._numbers("costs", name)
        if missing := [cost for cost in needed if cost not in table]:
            raise ProfileError(
                f"{self.path / 'card.json'}: costs {name!r} lack {missing[0]!r}; train the profile again"
            )
        return at_speed(name, table, self.host_speed)

    def intervals(self, name: str) -> Mapping[str, float]:
        """Half-widths of the 90 % interval of the logarithm of `latency` or `speedup`, by mode.

        They are narrower for a host whose speed is known, if the profile was measured on several machines.

        Raises:
            ProfileError: the card has no such table.
        """
        found = self.card.get("intervals")
        known = self.host_told and isinstance(found, Mapping) and name + TOLD in found
        widths = self._numbers("intervals", name + TOLD if known else name)
        if min(widths.values()) < 0:
            raise ProfileError(
                f"{self.path / 'card.json'}: an interval of {name!r} is negative; train the profile again"
            )
        return widths

    def _numbers(self, section: str, name: str) -> dict[str, float]:
        try:
            table = {str(key): float(value) for key, value in self.card[section][name].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            table = {}
        if not table or not all(abs(value) <= LARGEST[section] for value in table.values()):
            raise ProfileError(f"{self.path / 'card.json'}: no usable {section} {name!r}; train the profile again")
        return table


def at_speed(name: str, table: Mapping[str, float], host_speed: float) -> Mapping[str, float]:
    """A table of costs for a host of another speed; the table itself, if the device's costs are in it."""
    if name not in HOST_COSTS or host_speed == 1.0:
        return table
    return {cost: us / host_speed for cost, us in table.items()}


def shipped_directory() -> Path:
    """Where the package's own profiles lie: inside an installed package, beside it in a checkout."""
    here = Path(__file__).parent
    inside = here / "trained_models"
    return inside if inside.is_dir() else here.parent / "trained_models"


def user_directory() -> Path:
    """Where a user's own profiles lie."""
    import platformdirs

    return Path(platformdirs.user_data_dir("costmodel")) / "trained_models"


def list_profiles() -> tuple[str, ...]:
    """The names of all profiles, shipped ones first."""
    names: dict[str, None] = {}
    for directory in (shipped_directory(), user_directory()):
        if directory.is_dir():
            names.update(dict.fromkeys(sorted(card.parent.name for card in directory.glob("*/card.json"))))
    return tuple(names)


@checked(name=checks.text)
def load_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        UnknownHardwareError: there is none; the message lists those there are.
        ProfileError: its card is damaged or of another version.
    """
    if name not in list_profiles():
        raise UnknownHardwareError(
            f"no hardware profile is called {name!r}; there are: {', '.join(list_profiles()) or 'none'}"
        )
    shipped = shipped_directory() / name
    path = shipped if (shipped / "card.json").is_file() else user_directory() / name
    try:
        card = read_json(path / "card.json")
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path / 'card.json'}: cannot be read: {error}") from error
    if not isinstance(card, dict) or card.get("schema") != CARD_SCHEMA:
        raise ProfileError(f"{path / 'card.json'}: not a card of schema {CARD_SCHEMA}; train the profile again")
    return Profile(name, path, card)


def resolve_default() -> tuple[str, str]:
    """The profile for this machine's GPU if there is one, else the default; and why it was chosen."""
    name = _this_device()
    if name is None:
        return DEFAULT, "the default; no GPU here"
    profile = profile_name(name)
    if profile in list_profiles():
        return profile, f"this machine has an {name}"
    return DEFAULT, f"the default; nobody has profiled this machine's {name}"


def profile_name(device: str) -> str:
    """What the profile of a device is called, if nobody calls it otherwise: `NVIDIA H200` is `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _this_device() -> str | None:
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(0)
