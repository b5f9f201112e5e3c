"""Profile of the hardware on the host that a request names, and the host in its report."""

from __future__ import annotations

from dataclasses import replace

from costmodel.prediction.arithmetic import DEFAULT, Arithmetic
from costmodel.profiles.hosts import Host, describe_host, resolve_host
from costmodel.profiles.profile import Profile, profile_of
from costmodel.report.types import Report


def on_host(hardware: str | None, host: str | float | None, arithmetic: Arithmetic) -> tuple[Profile, Host]:
    """Profile of the hardware with the speed of its host, under settings of torch; and the host.

    Raises:
        UnknownHardwareError: there is no such profile.
        RequestError: there is no such host, or the device has no such setting.
    """
    profile = profile_of(hardware)
    arithmetic.check_device(profile)
    chosen = resolve_host(None if host is None else str(host), profile)
    profile = replace(profile, host_speed=chosen.speed, host_calibrated=host is not None)
    return (profile if arithmetic == DEFAULT else arithmetic.on(profile)), chosen


def with_host(report: Report, profile: Profile, chosen: Host, host: str | float | None) -> Report:
    """The report with the host that it is of, and with the assumed one where none was given."""
    calibrated = None if profile.on_cpu else host is not None
    assumed = "" if calibrated else describe_host(profile)
    return replace(report, host=chosen.name, host_speed=chosen.speed, host_calibrated=calibrated, assumed_host=assumed)
