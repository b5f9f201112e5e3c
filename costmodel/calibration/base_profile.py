"""The profile of another device as the base that a profile's difference is learnt from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import ProfileError, RequestError
from costmodel.files import write_whole
from costmodel.predictor.predictor import Base
from costmodel.profiles.card import CARD, SHOWN
from costmodel.profiles.profile import OWN_BASE, PREDICTOR, Profile, list_profiles, load_profile, shipped_directory
from costmodel.timeline import residual_gp
from costmodel.timeline.compile_time import COLD
from costmodel.timeline.residual_gp import ResidualModel

NONE = "none"
"""Name that asks for no base."""
REFRESH = "refresh"
"""Directory in a profile's with the sample that was measured anew."""
WIDER = 1.5
"""Factor of the intervals of whole models that were predicted by another device's host costs."""
ALIKE = ("torch", "triton", "cuda", "cudnn", "driver")
"""Facts of the software that may differ between a base and a device."""


@dataclass(frozen=True, slots=True)
class BaseProfile:
    """A base with the profile that it comes from."""

    profile: Profile
    base: Base

    @property
    def name(self) -> str:
        """Name of the profile."""
        return self.profile.name

    def whole_models(self, say: Any) -> tuple[dict[str, Any], ResidualModel]:
        """Costs and wider intervals of the base, for a device on which too few models were measured."""
        say(f"too few models were measured: host costs are those of {self.name}, with wider intervals")
        card = self.profile.card
        found = {
            "costs": card.get("costs", {}),
            "intervals": self._wider_intervals(),
            "scores": {},
            "host": card.get("host", {}),
        }
        return found, residual_gp.no_residuals()

    def with_compile_times(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Sections of a summary with the base's compile times and wider intervals of them."""
        added = {"costs": self.profile.card.get("costs", {}), "intervals": self._wider_intervals()}
        parts = {
            name: found[name] | {key: value for key, value in section.items() if key.startswith(COLD)}
            for name, section in added.items()
        }
        return {**found, **parts}

    @property
    def machines_us(self) -> list[float]:
        """Launch times of the hosts that the base was measured on, microseconds."""
        return list(self.profile.card.get("host", {}).get("machines_us", ()))

    def _wider_intervals(self) -> dict[str, dict[str, float]]:
        return {
            quantity: {mode: WIDER * width for mode, width in by_mode.items()}
            for quantity, by_mode in self.profile.card.get("intervals", {}).items()
        }

    def describe(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """Section of the summary: the base, and what is different of device and software."""
        before = self.profile.environment
        changed = {fact: [before[fact], environment[fact]] for fact in ALIKE if _differs(fact, before, environment)}
        return {"name": self.name, "device": before.get("device", ""), "changed": changed}


def _differs(fact: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return fact in before and fact in now and before[fact] != now[fact]


def choose_base(given: str | None, name: str, environment: Mapping[str, str]) -> BaseProfile | None:
    """The base that was asked for, or the shipped profile whose device is most alike.

    Args:
        given: name of a profile, NONE for no base, None for the most alike.
        name: name of the profile that is trained, which is no base.
        environment: environment that it was measured in.

    Raises:
        RequestError: there is no such profile, it has a base itself, or it is the one that is trained.
        ProfileError: the profile is damaged.
    """
    if given == NONE:
        return None
    chosen = most_alike(name, environment) if given is None else given
    if chosen is None:
        return None
    if chosen == name:
        raise RequestError(
            f"{name!r} cannot be its own base; `costmodel collect --refresh` measures what changed in it"
        )
    if chosen not in list_profiles():
        raise RequestError(
            f"no profile is called {chosen!r}; give --base none, or one of: {', '.join(list_profiles())}"
        )
    profile = load_profile(chosen)
    if given is not None and "base" in profile.card:
        below = profile.card["base"]["name"]
        raise RequestError(f"{chosen!r} has the base {below!r} itself, and cannot be one; give --base {below}")
    if profile.on_cpu != (environment.get("device") == "cpu"):
        raise RequestError(
            f"the base {chosen!r} is of a {'CPU' if profile.on_cpu else 'GPU'}, these measurements are not"
        )
    return BaseProfile(profile, Base(chosen, profile.summary.predictor_sha256, profile.predictor_alone()))


def most_alike(name: str, environment: Mapping[str, str]) -> str | None:
    """Name of the shipped profile whose device is most alike; None if none is of the same kind."""
    directory = shipped_directory()
    shipped = [one for one in list_profiles() if (directory / one / CARD).exists() and one != name]
    if name in list_profiles() and (directory / name / CARD).exists():
        return None  # a shipped profile is trained from nothing, unless a base is given
    near = {}
    for one in shipped:
        profile = load_profile(one)
        if "base" not in profile.card and (distance := _distance(profile.environment, environment)) is not None:
            near[one] = distance
    return min(near, key=lambda one: near[one], default=None)


def _distance(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[float, ...] | None:
    """How unlike two devices are: generation, then size; None for a GPU and a CPU."""
    if (one.get("device") == "cpu") != (other.get("device") == "cpu"):
        return None
    generation = abs(_number(one, "capability") - _number(other, "capability"))
    sizes = (max(1.0, _number(each, "threads") or _number(each, "multiprocessors")) for each in (one, other))
    return generation, abs(math.log(next(sizes) / next(sizes)))


def _number(environment: Mapping[str, str], fact: str) -> float:
    try:
        return float(environment.get(fact, 0.0))
    except ValueError:
        return 0.0


def own_base(directory: Path, name: str) -> BaseProfile:
    """A profile as it was before it is refreshed, its predictor kept beside as OWN_BASE.

    Raises:
        ProfileError: there is no profile to refresh, or it is damaged.
    """
    if not (directory / CARD).exists():
        raise ProfileError(f"{directory}: no profile to refresh; run `costmodel train --hardware {name}` first")
    file = directory / CARD
    profile = Profile(name, directory, SHOWN.check(SHOWN.load(file), str(file)))
    kept = directory / OWN_BASE
    if not kept.exists():  # an earlier refresh has kept it
        _ = profile.predictor  # refuse a damaged one
        write_whole(kept, (directory / PREDICTOR).read_bytes())
    sha256 = hashlib.sha256(kept.read_bytes()).hexdigest()
    return BaseProfile(profile, Base(name, sha256, profile.base_of(name, sha256)))
