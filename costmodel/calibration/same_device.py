"""Check that measurements are of the same device as the profile that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costmodel.device import Device
from costmodel.errors import DatasetError
from costmodel.profiles.card import CARD, SHOWN


def device_of(environment: Mapping[str, object], measured: Path) -> Device:
    """Device of measurements.

    Raises:
        DatasetError: it is an impossible one.
    """
    try:
        return Device.of(environment)
    except ValueError as error:
        raise DatasetError(f"{measured}: {error} in its environment; collect again") from error


def check_same_device(directory: Path, name: str, device: Device, measured: Path) -> None:
    """Refuse measurements of another device than the profile in a directory, or of one with another memory size.

    Args:
        directory: directory of the profile; of none, any device is right.
        name: name of the profile.
        device: device that was measured.
        measured: file or directory of the measurements.

    Raises:
        DatasetError: the devices differ.
    """
    path = directory / CARD
    if not path.exists():
        return
    known = SHOWN.check(SHOWN.load(path), str(path)).get("environment", {})
    if not isinstance(known, Mapping) or "device" not in known:
        return
    before = device_of(known, path)
    if not device.is_like(before):
        sized = before.name == device.name
        fault = f"measured on {_named(device, sized)}, but the profile {name} is of {_named(before, sized)}"
        raise DatasetError(f"{measured}: {fault}; give the measurements another --hardware name")


def _named(device: Device, sized: bool) -> str:
    """Device name; with its memory size, where two devices have the same name."""
    return f"{device.name} of {device.memory_bytes / 2**30:.0f} GiB" if sized and device.memory_bytes else device.name
