"""Calibrated hosts: speeds of CPUs that launch kernels, relative to the host of a profile.

Of two machines with the same GPU, one may take a fifth longer to launch the same kernels; host-bound models, most at
batch 1, are slower by as much. A host probe of a few seconds, a timed pass of a small reference network
(`costmodel.measurement.reference_network`), measures the speed. All host costs are in proportion to it.
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
"""Least and largest speed of a host relative to a profile's."""
NAME = r"[A-Za-z][A-Za-z0-9._-]{0,63}"
"""Pattern of a host's name."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its speed: one of 0.8 takes 1/0.8 times as long as the profile's host."""

    name: str
    speed: float = 1.0


class ProbedHost(msgspec.Struct, frozen=True):
    """A calibrated host in the file: duration of the probe, microseconds."""

    probe_us: Annotated[float, Meta(gt=0)]


class HostsFile(msgspec.Struct, frozen=True):
    """File of a user's calibrated hosts, by name."""

    schema: int
    hosts: dict[Annotated[str, Meta(pattern=rf"^{NAME}\Z")], ProbedHost]


HOSTS = Format(HostsFile, "a file of hosts", ProfileError, "remove it and collect the hosts again", (SCHEMA,), 1 << 20)


def resolve_host(wanted: str | None, profile: Profile) -> Host:
    """Host that a prediction is for.

    Args:
        wanted: name of a calibrated host, a speed such as `0.8`, or None for the profile's host: the least disturbed of
            the machines that it was measured on.
        profile: profile whose host costs are scaled.

    Raises:
        RequestError: there is no such host, the speed is impossible, or the profile is a CPU's.
        ProfileError: the file of hosts is damaged, or the profile has no host probe.
    """
    if wanted is None:
        return Host(_profile_host(profile))
    if profile.on_cpu:
        raise RequestError(f"{profile.name} is a CPU, which has no separate host; leave --host out")
    if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", wanted):
        return Host(wanted, _possible(wanted))
    known = list_hosts()
    if wanted not in known:
        raise RequestError(
            f"no host is called {wanted!r}; there are: {', '.join(known) or 'none'}; "
            "`costmodel collect host` on that machine calibrates it, or give its speed, such as 0.8"
        )
    return Host(wanted, speed_of(known[wanted], profile))


def speed_of(probe_us: float, profile: Profile) -> float:
    """Speed of a host by the duration of its probe, microseconds, relative to the profile's host.

    Raises:
        ProfileError: the profile has no host probe, or the speed is impossible.
    """
    own = profile.summary.host.probe_us
    if own is None:
        raise ProfileError(f"{profile.path / 'card.json'}: it has no host probe; train the profile again")
    speed = own / probe_us
    if not SLOWEST <= speed <= FASTEST:
        raise ProfileError(
            f"{hosts_file()}: impossible host probe of {probe_us:g} us; remove the file and collect it again"
        )
    return speed


def describe_host(profile: Profile) -> str:
    """The host that a prediction assumes where none is given, and the hosts that its intervals cover, in one line.

    Empty for a CPU, and for a profile that does not know how other hosts differ.
    """
    host = profile.summary.host
    if profile.on_cpu or host.probe_us is None or host.range_us is None:
        return ""
    fastest, slowest = (us / host.probe_us for us in host.range_us)
    return (
        f"an undisturbed dedicated machine, {host.probe_us:.1f} us a launch; the intervals cover hosts that take "
        f"{fastest:.2f} to {slowest:.2f} times as long"
    )


def _profile_host(profile: Profile) -> str:
    machines = profile.summary.host.machines_us
    if len(machines) > 1:
        chosen = "median" if profile.summary.host.range_us is None else "least disturbed"
        return f"the {chosen} of {len(machines)} machines"
    taken_on = profile.environment
    known = {"host_cpu", "cores"} <= taken_on.keys()
    return f"{taken_on['host_cpu']}, {taken_on['cores']} cores" if known else ""


def _possible(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not SLOWEST <= speed <= FASTEST:
        raise RequestError(f"impossible host speed {text}; 1 is the profile's host, 0.8 a slower one")
    return speed


def hosts_file() -> Path:
    """File of the user's calibrated hosts."""
    return user_directory().parent / "hosts.json"


def list_hosts() -> dict[str, float]:
    """Durations of the probe by name of the calibrated hosts, microseconds.

    Raises:
        ProfileError: the file is damaged or of another version.
    """
    path = hosts_file()
    if not os.path.lexists(path):
        return {}
    return {name: host.probe_us for name, host in HOSTS.read(path).hosts.items()}


def save_host(name: str, probe_us: float) -> Path:
    """Add a calibrated host to the file, or replace it, and return the file's path.

    Raises:
        RequestError: the name is not allowed, or the file cannot be written.
        ProfileError: the existing file is damaged.
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
