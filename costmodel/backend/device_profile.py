"""Profile for the device of a graph: the device's own, or the nearest one, whose predictions then need measurements."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from costmodel.profiles.profile import DEFAULT, Profile, list_profiles, load_profile, profile_of_gpu


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Profile that plans a graph.

    Attributes:
        profile: the profile.
        is_own: whether its predictions are of this device, so that they decide; else candidates are measured.
        note: reason in words.
    """

    profile: Profile
    is_own: bool
    note: str


def profile_for(device: torch.device, hardware: str | None) -> DeviceProfile:
    """Choose the profile for a device.

    A CPU has a profile of its own only if one is named: the same processor with other memory or neighbours is another.

    Args:
        device: a GPU or the CPU.
        hardware: name of a profile; None for the device's own. One of another kind of device is not used.

    Raises:
        UnknownHardwareError, ProfileError: as `load_profile`.
    """
    on_cpu = device.type == "cpu"
    if hardware is not None:
        named = load_profile(hardware)
        if named.on_cpu == on_cpu:
            return DeviceProfile(named, True, f"predicted for {hardware}")
    if on_cpu:
        return DeviceProfile(_nearest_cpu(), False, "there is no profile of this CPU")
    name = torch.cuda.get_device_name(device)
    found = profile_of_gpu(name)
    if found is None:
        return DeviceProfile(load_profile(DEFAULT), False, f"there is no profile of an {name}")
    return DeviceProfile(load_profile(found[0]), True, found[1])


def _nearest_cpu() -> Profile:
    """Profile of a CPU whose number of threads is the nearest."""
    profiles = [profile for name in list_profiles() if (profile := load_profile(name)).on_cpu]
    return min(profiles, key=lambda profile: abs(profile.device.multiprocessors - torch.get_num_threads()))
