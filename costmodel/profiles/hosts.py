"""Hosts: how fast the CPU that issues kernels is, against the one that a profile's host costs were measured on.

Of two machines with the same GPU one may take a fifth longer to issue the same kernels, and whatever the host bounds
(most models at batch 1) is slower by as much. A probe of a few seconds tells: a pass of a small network
(`reference_pass`), told in launches. All host costs are taken to be in proportion to it.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from costmodel.errors import ProfileError, RequestError
from costmodel.files import write_whole
from costmodel.profiles.profile import Profile, user_directory
from costmodel.records import Format

SCHEMA = 1
SLOWEST, FASTEST = 0.05, 20.0
NAME = r"[A-Za-z][A-Za-z0-9._-]{0,63}"
"""What a host can be called."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host by name, and its speed: 0.8 takes a quarter longer than the profile's own."""

    name: str
    speed: float = 1.0


class ProbedHost(msgspec.Struct, frozen=True):
    """A host in the file: how long the probe takes on it."""

    probe_us: Annotated[float, Meta(gt=0)]


class HostsFile(msgspec.Struct, frozen=True):
    """The file of a user's hosts, by name."""

    schema: int
    hosts: dict[Annotated[str, Meta(pattern=rf"^{NAME}\Z")], ProbedHost]


HOSTS = Format(HostsFile, "a file of hosts", ProfileError, "remove it and collect the hosts again", (SCHEMA,), 1 << 20)


def resolve_host(wanted: str | None, profile: Profile) -> Host:
    """The host that a prediction is for.

    Args:
        wanted: a host's name, a speed such as `0.8`, or None for the profile's own: the middle one of the machines that
            it was measured on.
        profile: whose host costs are to be scaled.

    Raises:
        RequestError: there is no such host, no host has such a speed, or the profile is a CPU's.
        ProfileError: the file of hosts is damaged, or the profile does not tell how fast its own was.
    """
    if wanted is None:
        return Host(_own_name(profile))
    if profile.on_cpu:
        raise RequestError(f"{profile.name} is a CPU, and its own host; leave --host out")
    if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", wanted):
        return Host(wanted, _possible(wanted))
    known = list_hosts()
    if wanted not in known:
        raise RequestError(
            f"no host is called {wanted!r}; there are: {', '.join(known) or 'none'}; "
            "`costmodel collect host` on that machine adds it, or give its speed, such as 0.8"
        )
    return Host(wanted, speed_of(known[wanted], profile))


def speed_of(probe_us: float, profile: Profile) -> float:
    """The speed of a host whose probe takes so many microseconds.

    Raises:
        ProfileError: the profile does not tell how long the probe took on its own host.
    """
    own = profile.summary.host.probe_us
    if own is None:
        raise ProfileError(f"{profile.path / 'card.json'}: its host's speed is not told; train the profile again")
    speed = own / probe_us
    if not SLOWEST <= speed <= FASTEST:
        raise ProfileError(
            f"{hosts_file()}: a launch of {probe_us:g} us is no host's; remove it and collect the host again"
        )
    return speed


def _own_name(profile: Profile) -> str:
    machines = profile.summary.host.machines_us
    if len(machines) > 1:
        return f"the middle one of {len(machines)} machines"
    taken_on = profile.environment
    known = {"host_cpu", "cores"} <= taken_on.keys()
    return f"{taken_on['host_cpu']}, {taken_on['cores']} cores" if known else ""


def _possible(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not SLOWEST <= speed <= FASTEST:
        raise RequestError(f"impossible host speed {text}; 1 is the profile's own host, 0.8 one that is slower")
    return speed


def hosts_file() -> Path:
    """Where a user's hosts are kept."""
    return user_directory().parent / "hosts.json"


def list_hosts() -> dict[str, float]:
    """Probe times of the known hosts by name, microseconds.

    Raises:
        ProfileError: their file is damaged or of another version.
    """
    path = hosts_file()
    if not os.path.lexists(path):
        return {}
    return {name: host.probe_us for name, host in HOSTS.read(path).hosts.items()}


def save_host(name: str, probe_us: float) -> Path:
    """Adds a host to the file, or replaces it there; the file appears whole or not at all.

    Raises:
        RequestError: the name is none, or the file cannot be written.
        ProfileError: the file that there is is damaged.
    """
    if not re.fullmatch(NAME, name):
        raise RequestError(f"impossible name {name!r} for a host; use letters, digits, '-', '_', '.', a letter first")
    hosts = {known: {"probe_us": us} for known, us in list_hosts().items()} | {name: {"probe_us": probe_us}}
    path = hosts_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"schema": SCHEMA, "hosts": hosts}, indent=1) + "\n")
    except OSError as error:
        raise RequestError(f"{path}: cannot be written: {error.strerror}") from error
    return path
