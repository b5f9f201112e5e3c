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
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import ProfileError, UnknownHardwareError
from costmodel.predictor.predictor import Predictor
from costmodel.profiles.predictor_file import load_predictor
from costmodel.records import Duration, Format, Shallow, Text
from costmodel.timeline.residual_gp import ResidualModel, no_residuals

CARD_SCHEMA = 1
PREDICTOR, WHOLE_MODELS = "predictor.safetensors", "whole_models.safetensors"
"""Files of a profile: what tells kernels, and what whole models tell of others beyond that."""
DEFAULT = "nvidia-h200"
HOST_COSTS = frozenset({"eager_host", "default_host", "graph_host", "compile"})
"""Tables of costs that are the host's; the rest is the device's, or relative to these."""

CALIBRATED = "_calibrated"
"""Ends the names of intervals for a host whose speed is known."""
Cost = Annotated[float, Meta(ge=-1e8, le=1e8)]
"""A fitted coefficient, microseconds or a factor; one of several may be negative, as their sum is what was measured."""
DeviceCost = Annotated[float, Meta(ge=0, le=1e8)]
"""What a launch or a call takes the device beyond its kernels, microseconds, or a share."""
HalfWidth = Annotated[float, Meta(ge=0, le=20)]
"""Of the prediction interval of a logarithm: at most a factor of 10^8."""


class HostSummary(msgspec.Struct, frozen=True):
    """Speed of the hosts that a profile was measured on; empty for a CPU's profile.

    Attributes:
        probe_us: duration of the probe on the profile's own host.
        machines_us: the same on each machine that was measured.
    """

    probe_us: Duration | None = None
    machines_us: tuple[Duration, ...] = ()


class CostTables(msgspec.Struct, frozen=True):
    """Tables of fitted costs by the names of `costmodel.calibration.host_costs`."""

    eager_host: dict[str, Cost] = {}
    eager_device: dict[str, DeviceCost] = {}
    eager_wall: dict[str, DeviceCost] = {}
    eager_serial: dict[str, Cost] = {}
    default_host: dict[str, Cost] = {}
    default_device: dict[str, DeviceCost] = {}
    default_wall: dict[str, DeviceCost] = {}
    default_serial: dict[str, Cost] = {}
    graph_host: dict[str, Cost] = {}
    compile: dict[str, Cost] = {}


class ProfileSummary(msgspec.Struct, frozen=True):
    """The fields of a card that predictions use; others are only shown.

    Attributes:
        schema: version of the format.
        environment: what the profile was measured in.
        predictor_sha256: hash of the predictor's file; empty for none.
        whole_models_sha256: hash of the discrepancy's file; unset in profiles without.
        host: speed of the hosts.
        costs: fitted costs by table.
        intervals: half-widths of 90 % prediction intervals of logarithms, by quantity and mode.
    """

    schema: int
    environment: dict[str, Text] = {}
    predictor_sha256: Text = ""
    whole_models_sha256: Text | msgspec.UnsetType = msgspec.UNSET
    host: HostSummary = HostSummary()
    costs: CostTables = CostTables()
    intervals: dict[str, dict[str, HalfWidth]] = {}


SHOWN = Format(dict[str, Shallow], "a card", ProfileError, "train the profile again", (CARD_SCHEMA,), 16 << 20)
"""A card as it is shown, whatever is in it."""
USED = Format(ProfileSummary, "a card", ProfileError, "train the profile again", (CARD_SCHEMA,))
"""A card as it is used."""


@dataclass(frozen=True)
class Profile:
    """One hardware profile; its other files are read on first use.

    Attributes:
        name: what it is called.
        path: the folder that it lies in.
        card: what its card says.
        host_speed: of the host that is predicted for, against the profile's own; its costs are scaled by it.
        host_calibrated: whether that is known of the host, and not only the best guess.
    """

    name: str
    path: Path
    card: Mapping[str, Any]
    host_speed: float = 1.0
    host_calibrated: bool = False

    @cached_property
    def summary(self) -> ProfileSummary:
        """The fields of the card that predictions use.

        Raises:
            ProfileError: one of them is of another type, or no possible number; the message names it.
        """
        return USED.check(self.card, str(self.path / "card.json"))

    @cached_property
    def predictor(self) -> Predictor:
        """The trained predictor.

        Raises:
            ProfileError: its file is not the one that the card was written with, or is damaged.
        """
        return load_predictor(self.path / PREDICTOR, self.summary.predictor_sha256)

    @cached_property
    def residual_model(self) -> ResidualModel:
        """What measured models tell of others; nothing in profiles that were made before this was learnt.

        Raises:
            ProfileError: its file is not the one that the card was written with, or is damaged.
        """
        sha256 = self.summary.whole_models_sha256
        return no_residuals() if sha256 is msgspec.UNSET else ResidualModel.load(self.path / WHOLE_MODELS, sha256)

    def using(self, predictor: Predictor) -> Profile:
        """The profile with another predictor in place of its own."""
        other = replace(self)
        other.__dict__["predictor"] = predictor  # where the cached property would put its own
        return other

    @property
    def environment(self) -> Mapping[str, str]:
        """What the profile was measured in; empty if its card does not tell."""
        return self.summary.environment

    @property
    def on_cpu(self) -> bool:
        """Whether the profile is of a CPU, which launches nothing and has no cuDNN."""
        return self.environment.get("device") == "cpu"

    @property
    def capability(self) -> str:
        """The GPU's compute capability, such as `9.0`; empty for a CPU."""
        return self.environment.get("capability", "")

    def costs(self, name: str, needed: Sequence[str] = ()) -> Mapping[str, float]:
        """A table of fitted costs from the card (`eager_host`, `default_wall`, ...); microseconds, but for ratios.

        Raises:
            ProfileError: the card has no such table, or one that lacks a cost that is needed.
        """
        table: Mapping[str, float] = getattr(self.summary.costs, name, {})
        if not table:
            raise self._lacks(f"no usable costs {name!r}")
        if missing := [cost for cost in needed if cost not in table]:
            raise self._lacks(f"costs {name!r} lack {missing[0]!r}")
        return at_speed(name, table, self.host_speed)

    def intervals(self, name: str) -> Mapping[str, float]:
        """Half-widths of the 90 % interval of the logarithm of `latency` or `speedup`, by mode.

        They are narrower for a host whose speed is known, if the profile was measured on several machines.

        Raises:
            ProfileError: the card has no such table.
        """
        found = self.summary.intervals
        table = found.get(name + CALIBRATED if self.host_calibrated and name + CALIBRATED in found else name)
        if not table:
            raise self._lacks(f"no usable intervals {name!r}")
        return table

    def _lacks(self, what: str) -> ProfileError:
        return ProfileError(f"{self.path / 'card.json'}: {what}; train the profile again")


def at_speed(name: str, table: Mapping[str, float], host_speed: float) -> Mapping[str, float]:
    """A table of costs for a host of another speed; the table itself, if the device's costs are in it."""
    if name not in HOST_COSTS or host_speed == 1.0:
        return table
    return {cost: us / host_speed for cost, us in table.items()}


def shipped_directory() -> Path:
    """Where the package's own profiles lie: inside an installed package, beside it in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "trained_models"
    return inside if inside.is_dir() else here.parent / "trained_models"


def user_directory() -> Path:
    """Where a user's own profiles lie."""
    import platformdirs

    return Path(platformdirs.user_data_dir("costmodel")) / "trained_models"


def list_profiles() -> tuple[str, ...]:
    """The names of all profiles, shipped ones first."""
    found = (*_profiles_in(shipped_directory()), *_profiles_in(user_directory()))
    return tuple(dict.fromkeys(found))


def _profiles_in(directory: Path) -> list[str]:
    """The names of the profiles in a directory; none where it is not there or cannot be entered."""
    try:
        return sorted(place.name for place in directory.iterdir() if (place / "card.json").exists())
    except OSError:
        return []


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
    file = path / "card.json"
    card = SHOWN.check(SHOWN.load(file), str(file))
    profile = Profile(name, path, card)
    _ = profile.summary  # a damaged card is refused here, not in the middle of a prediction
    return profile


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
