"""Hardware profiles: one directory of data for each device.

A profile is a directory `trained_models/NAME`. It holds the summary (`card.json`: environment, fitted costs, scores,
hashes of the other files), `predictor.safetensors`, `whole_models.safetensors`, and the datasets that they were trained
on. Profiles that ship with the package are read-only. A user's own lie in the user's data directory.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from costmodel import checks
from costmodel.checks import checked
from costmodel.device import Device
from costmodel.errors import ProfileError, UnknownHardwareError
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.predictor import Predictor
from costmodel.profiles.card import CALIBRATED, CARD, SHOWN, USED, ProfileSummary, at_speed
from costmodel.profiles.predictor_file import load_predictor
from costmodel.timeline.residual_gp import ResidualModel, no_residuals

PREDICTOR, WHOLE_MODELS = "predictor.safetensors", "whole_models.safetensors"
"""Files of a profile: the predictor of kernels, and the residual model of whole models."""
OWN_BASE = "base.safetensors"
"""Predictor of a refreshed profile from before it was refreshed."""
DEFAULT = "nvidia-h200"


@dataclass(frozen=True)
class Profile:
    """One hardware profile; files other than the summary are read on first use.

    Attributes:
        name: name of the profile.
        path: its directory.
        card: content of its `card.json`.
        host_speed: speed of the host that is predicted for, relative to the profile's; host costs are divided by it.
        host_calibrated: whether that speed was measured or given, so that the narrower intervals hold.
    """

    name: str
    path: Path
    card: Mapping[str, Any]
    host_speed: float = 1.0
    host_calibrated: bool = False

    @cached_property
    def summary(self) -> ProfileSummary:
        """Fields of the summary that predictions use.

        Raises:
            ProfileError: a field has another type or an impossible value; the message names it.
        """
        return USED.check(self.card, str(self.path / CARD))

    @cached_property
    def predictor(self) -> Predictor:
        """The trained predictor.

        Raises:
            ProfileError: its file is damaged, or has another hash than the summary says.
        """
        found = load_predictor(self.path / PREDICTOR, self.summary.predictor_sha256, self.base_of)
        curves = self.summary.error_curves
        return found.with_curves({name: ErrorCurve(one.distances, one.factors) for name, one in curves.items()})

    def base_of(self, name: str, sha256: str) -> Predictor:
        """Predictor of the profile that this one was trained with as its base.

        Args:
            name: name of the base; this profile's own for a refreshed profile.
            sha256: hash of its file.

        Raises:
            ProfileError: the base is missing, damaged, or was trained again since.
        """
        if name == self.name:
            return load_predictor(self.path / OWN_BASE, sha256, partial(_base_predictor, strange=name))
        return _base_predictor(name, sha256)

    def predictor_alone(self) -> Predictor:
        """The trained predictor of a profile without a base, as another's base.

        Raises:
            ProfileError: its file is damaged, or it has a base itself.
        """
        curves = self.summary.error_curves
        found = load_predictor(self.path / PREDICTOR, self.summary.predictor_sha256)
        return found.with_curves({name: ErrorCurve(one.distances, one.factors) for name, one in curves.items()})

    @cached_property
    def residual_model(self) -> ResidualModel:
        """Residual model of whole models; without effect in a profile that has none.

        Raises:
            ProfileError: its file is damaged, or has another hash than the summary says.
        """
        sha256 = self.summary.whole_models_sha256
        return no_residuals() if sha256 is msgspec.UNSET else ResidualModel.load(self.path / WHOLE_MODELS, sha256)

    def using(self, predictor: Predictor) -> Profile:
        """The profile with another predictor."""
        other = replace(self)
        other.__dict__["predictor"] = predictor  # where the cached property stores the loaded one
        return other

    def on(self, device: Device) -> Profile:
        """The profile with other facts of its device."""
        other = copy.copy(self)
        other.__dict__["device"] = device  # where the cached property stores it
        return other

    @property
    def environment(self) -> Mapping[str, str]:
        """Hardware and software that the profile was measured with; empty where the summary has none."""
        return self.summary.environment

    @cached_property
    def device(self) -> Device:
        """Facts of the device.

        Raises:
            ProfileError: the summary records an impossible one.
        """
        try:
            return Device.of(self.environment)
        except ValueError as error:
            raise self._lacks(str(error)) from None

    @property
    def on_cpu(self) -> bool:
        """Whether the profile is of a CPU, which runs kernels itself and has neither launches nor cuDNN."""
        return self.device.is_cpu

    @property
    def capability(self) -> str:
        """Compute capability of the GPU, such as `9.0`; empty for a CPU."""
        return self.environment.get("capability", "")

    @property
    def host_speeds(self) -> tuple[float, ...]:
        """Speeds of the hosts that an interval covers, relative to the profile's host.

        One for a calibrated host. Otherwise the assumed host's, and those of the slowest and fastest host that the
        profile's range includes.
        """
        probe_us, range_us = self.summary.host.probe_us, self.summary.host.range_us
        if self.host_calibrated or probe_us is None or range_us is None:
            return (self.host_speed,)
        return (self.host_speed, probe_us / max(range_us), probe_us / min(range_us))

    def costs(self, name: str, needed: Sequence[str] = (), host_speed: float | None = None) -> Mapping[str, float]:
        """A table of fitted costs (`eager_host`, `default_wall`, ...) at a host's speed; microseconds or factors.

        Args:
            name: name of the table.
            needed: costs that it must have.
            host_speed: speed of the host; None for the predicted one.

        Raises:
            ProfileError: the summary has no such table, or the table lacks a needed cost.
        """
        table: Mapping[str, float] = getattr(self.summary.costs, name, {})
        if not table:
            raise self._lacks(f"no usable costs {name!r}")
        if missing := [cost for cost in needed if cost not in table]:
            raise self._lacks(f"costs {name!r} lack {missing[0]!r}")
        return at_speed(name, table, self.host_speed if host_speed is None else host_speed)

    def intervals(self, name: str) -> Mapping[str, float]:
        """Half-widths of the 90 % prediction interval of the logarithm of `latency` or `speedup`, by mode.

        They hold for a host of known speed. A profile of an earlier version, without a range of hosts, has wider ones
        for an uncalibrated host.

        Raises:
            ProfileError: the summary has no such table.
        """
        found = self.summary.intervals
        table = found.get(name + CALIBRATED if self.host_calibrated and name + CALIBRATED in found else name)
        if not table:
            raise self._lacks(f"no usable intervals {name!r}")
        return table

    def _lacks(self, what: str) -> ProfileError:
        return ProfileError(f"{self.path / CARD}: {what}; train the profile again")


def _base_predictor(name: str, sha256: str, strange: str = "") -> Predictor:
    """Predictor of another profile as a base.

    Raises:
        ProfileError: the profile is missing, damaged, or was trained again since; or is the strange one.
    """
    if name == strange or name not in list_profiles():
        raise ProfileError(f"its base {name!r} is missing; install it, or train again with --base none")
    base = load_profile(name)
    if base.summary.predictor_sha256 != sha256:
        raise ProfileError(f"its base {name!r} was trained again since; train this profile again")
    return base.predictor_alone()


def shipped_directory() -> Path:
    """Directory of the shipped profiles: inside an installed package, beside the package in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "trained_models"
    return inside if inside.is_dir() else here.parent / "trained_models"


def user_directory() -> Path:
    """Directory of the user's own profiles."""
    import platformdirs

    return Path(platformdirs.user_data_dir("costmodel")) / "trained_models"


def list_profiles() -> tuple[str, ...]:
    """Names of all profiles, shipped ones first."""
    found = (*_profiles_in(shipped_directory()), *_profiles_in(user_directory()))
    return tuple(dict.fromkeys(found))


def _profiles_in(directory: Path) -> list[str]:
    """Names of the profiles in a directory; none where it does not exist or cannot be read."""
    try:
        return sorted(place.name for place in directory.iterdir() if (place / CARD).exists())
    except OSError:
        return []


@checked(name=checks.text)
def load_profile(name: str) -> Profile:
    """Load the profile of a name.

    Raises:
        UnknownHardwareError: there is none; the message lists the existing ones.
        ProfileError: its summary is damaged or of another version.
    """
    if name not in list_profiles():
        raise UnknownHardwareError(
            f"no hardware profile is called {name!r}; there are: {', '.join(list_profiles()) or 'none'}"
        )
    shipped = shipped_directory() / name
    path = shipped if (shipped / CARD).is_file() else user_directory() / name
    file = path / CARD
    card = SHOWN.check(SHOWN.load(file), str(file))
    profile = Profile(name, path, card)
    _ = profile.summary  # refuse a damaged summary here, not in the middle of a prediction
    return profile


def profile_of(hardware: str | None) -> Profile:
    """Load the profile of a name, or of this machine's GPU if there is no name.

    Raises:
        UnknownHardwareError, ProfileError: as `load_profile`.
    """
    return load_profile(resolve_default()[0] if hardware is None else hardware)


def resolve_default() -> tuple[str, str]:
    """Name of the profile for this machine's GPU, or of the default; and the reason."""
    name = _this_device()
    if name is None:
        return DEFAULT, "the default; no GPU here"
    return profile_of_gpu(name) or (DEFAULT, f"the default; there is no profile of this machine's {name}")


def profile_of_gpu(name: str) -> tuple[str, str] | None:
    """Name of the profile of a GPU, or of another with its model; and the reason. None if there is neither."""
    profile = profile_name(name)
    if profile in list_profiles():
        return profile, f"this machine has an {name}"
    return _of_the_model(name)


def _of_the_model(device: str) -> tuple[str, str] | None:
    """Profile of a GPU by its model alone, `nvidia-h100` for every `NVIDIA H100 ...`; and the reason."""
    name = profile_name(" ".join(device.split()[:2]))
    if name not in list_profiles():
        return None
    measured = load_profile(name).environment.get("device", device)
    if measured == device:
        return name, f"this machine has an {device}"
    return name, f"measured on an {measured}; this machine's {device} may have another memory and other clocks"


def release_note(profile: Profile) -> str:
    """A line about a prediction for another release of torch than the installed one; empty for the same."""
    from importlib.metadata import version

    measured, here = profile.environment.get("torch", ""), version("torch")
    if not measured or _release(measured) == _release(here):
        return ""
    notice = f"{profile.name} was measured with torch {_release(measured)}, and {_release(here)} is installed"
    return f"{notice}: it may fuse other operators and choose other kernels than predicted"


def _release(version: str) -> str:
    """`2.13` for `2.13.0+cpu`."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def profile_name(device: str) -> str:
    """Usual name of a device's profile: `nvidia-h200` for `NVIDIA H200`."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _this_device() -> str | None:
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(0)
