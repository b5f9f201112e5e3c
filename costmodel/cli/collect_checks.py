"""Checks of the options of `collect` and `train`: durations, devices, profile names, directories, clusters."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import RequestError

if TYPE_CHECKING:
    from costmodel.predictor.predictor import Base

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 30 * 24 * 3600.0


def parse_duration(text: str) -> float:
    """Seconds of a text such as `90s`, `20m` or `1.5h`.

    Raises:
        RequestError: the text is not a duration, or is zero or above 30 days.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise RequestError(f"impossible budget {text!r}; give a time up to 30 days, such as 90s, 20m or 1h")
    return seconds


def check_device(device: str | None) -> str:
    """Device to measure: the one asked for if it exists; by default `cuda` if there is one, else `cpu`.

    Raises:
        RequestError: the device does not exist, or is none of `cpu`, `cuda`, `cuda:N`.
    """
    import torch

    from collectors.processes.process import pinned

    count = torch.cuda.device_count() if torch.version.cuda is not None else 0
    if device is None:
        return "cuda" if count else "cpu"
    pinned(device)
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= count:
        raise RequestError(f"there is no {device} here (CUDA devices: {count}); --device cpu measures the processor")
    return device


def check_launches(device: str) -> None:
    """Check that kernels are launched on the device by a host.

    Raises:
        RequestError: the device is a CPU.
    """
    if device == "cpu":
        raise RequestError("launch overhead is measured on a GPU only; give --device cuda on a machine that has one")


def set_threads(threads: int | None, device: str) -> None:
    """Set the number of threads that kernels of a CPU run on, in this process and those it starts.

    Raises:
        RequestError: the device is not a CPU, or has fewer cores.
    """
    if threads is None:
        return
    if device != "cpu":
        raise RequestError("--threads is for --device cpu; a GPU's kernels run on none")
    cores = os.cpu_count() or 1
    if threads > cores:
        raise RequestError(f"--threads {threads} are more than the {cores} cores of this machine")
    import torch

    torch.set_num_threads(threads)


def check_name(name: str | None, device: str) -> str:
    """Name of the profile to make; by default the device's name.

    Raises:
        RequestError: the name cannot be a directory's, or a shipped profile has it.
    """
    from costmodel.profiles.profile import shipped_directory

    shipped = shipped_directory()
    if name is None:
        name = _device_name(device)
        return f"{name}-local" if (shipped / name).exists() else name
    check_form(name)
    if (shipped / name).exists():
        raise RequestError(f"the profile {name} is shipped and cannot be changed; choose another --hardware name")
    return name


def check_form(name: str) -> None:
    """Check that a profile can have this name, which names its directory too.

    Raises:
        RequestError: it cannot.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise RequestError(f"impossible name {name!r} for a profile; use letters, digits, '-', '_' and '.'")


def base_of(given: str | None, name: str, device: str) -> Base | None:
    """Predictor that the difference of a device is learnt from.

    Raises:
        RequestError, ProfileError: as `choose_base`.
    """
    from collectors.processes.environment import environment
    from costmodel.calibration.base_profile import choose_base

    chosen = choose_base(given, name, environment(device))
    return None if chosen is None else chosen.base


def check_same(name: str, directory: Path, device: str) -> None:
    """Check that the profile in a directory, if there is one, is of this device.

    Raises:
        DatasetError: it is of another one, or of one with another memory size.
        ProfileError: it is damaged.
    """
    from collectors.processes.environment import environment
    from costmodel.calibration.same_device import check_same_device, device_of

    check_same_device(directory, name, device_of(environment(device), directory), directory)


def refreshed(name: str, directory: Path, base: str | None) -> tuple[Base, Path]:
    """A profile's own predictor as the base of its refresh, and the directory of the measurements.

    Raises:
        RequestError: a base was given too.
        ProfileError: there is no profile to refresh, or it is damaged.
    """
    from costmodel.calibration.base_profile import REFRESH, own_base

    if base is not None:
        raise RequestError("--refresh takes the profile itself as the base; leave --base out")
    own = own_base(directory, name).base
    return own, make_directory(name, directory / REFRESH)


def make_directory(name: str, wanted: Path | None) -> Path:
    """Create the directory of the measurements: the one wanted, else the profile's in the user's data directory.

    Raises:
        RequestError: it cannot be created or written to.
    """
    from costmodel.profiles.profile import user_directory

    directory = wanted or user_directory() / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK):
        raise RequestError(f"cannot write to {directory}")
    return directory


def check_cluster(
    names: Sequence[str], device: str | None, hardware: str | None, scheduler: str | None, workers: int | None
) -> None:
    """Check that a cluster can do what was asked for.

    Args:
        names: workloads.
        device: device as given.
        hardware: name of the profile, if one was given.
        scheduler: address, `local`, or None for no cluster.
        workers: number of workers, if one was given.

    Raises:
        RequestError: it cannot, with the reason.
    """
    from collectors.workloads.catalog import UNIT_WORKLOADS

    if workers is not None and scheduler != "local":
        raise RequestError("--workers goes with --scheduler local; a cluster elsewhere has a fixed number of workers")
    if scheduler is None:
        return
    if importlib.util.find_spec("distributed") is None:
        raise RequestError("--scheduler needs Dask; pip install 'costmodel[dask]'")
    if other := [name for name in names if name not in UNIT_WORKLOADS]:
        raise RequestError(f"{other[0]} is measured on one machine by itself; give it without --scheduler")
    if device not in (None, "cpu", "cuda"):
        raise RequestError(f"with --scheduler the device is cpu or cuda, not {device!r}; CUDA_VISIBLE_DEVICES chooses")
    if scheduler != "local" and hardware is None:
        raise RequestError("the device is on other machines: name the profile with --hardware NAME")


def _device_name(device: str) -> str:
    import torch

    from costmodel.profiles.profile import profile_name

    return profile_name("cpu" if device == "cpu" else torch.cuda.get_device_name(torch.device(device)))
