"""The options of `costmodel collect`, and what they must be: a time, a device that is there, a name, a directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from costmodel.errors import RequestError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 30 * 24 * 3600.0

Workloads = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WORKLOAD]...", help="conv, matmul, layer, models, host; default: conv, matmul and layer."),
]
Name = Annotated[
    str | None, typer.Option("--hardware", metavar="NAME", help="The profile being made; default: after the device.")
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda|cuda:N", help="Where to measure; default: cuda if there.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long it may take: 90s, 20m, 1h.")]
HostName = Annotated[
    str | None, typer.Option("--host", metavar="NAME", help="What the workload `host` calls this machine.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Where the measurements go; default: the user's profiles."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Of a CPU that is measured; default: as many as torch takes.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS|local", help="Measure on a Dask cluster; local: on all GPUs here."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="With --scheduler local: how many devices.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A few tiny units, to try it out.")]


def parse_duration(text: str) -> float:
    """Seconds that `90s`, `20m` or `1.5h` say.

    Raises:
        RequestError: the text is no such time, or one of no use.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise RequestError(f"impossible budget {text!r}; give a time up to 30 days, such as 90s, 20m or 1h")
    return seconds


def check_device(device: str | None) -> str:
    """The device to measure on, if it is there.

    Raises:
        RequestError: it is not, or is none of `cpu`, `cuda`, `cuda:N`.
    """
    import torch

    from collectors.process import pinned

    count = torch.cuda.device_count() if torch.version.cuda is not None else 0
    if device is None:
        return "cuda" if count else "cpu"
    pinned(device)
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= count:
        raise RequestError(f"there is no {device} here (CUDA devices: {count}); --device cpu measures the processor")
    return device


def check_name(name: str | None, device: str) -> str:
    """The name of the profile being made; by default one made of the device's.

    Raises:
        RequestError: it cannot be a directory's name, or is that of a shipped profile.
    """
    from costmodel.hardware import shipped_directory

    shipped = shipped_directory()
    if name is None:
        name = _slug(device)
        return f"{name}-local" if (shipped / name).exists() else name
    check_form(name)
    if (shipped / name).exists():
        raise RequestError(f"the profile {name} is shipped and cannot be changed; choose another --hardware name")
    return name


def check_form(name: str) -> None:
    """Nothing, if a profile can be called so.

    Raises:
        RequestError: it cannot: the name is that of a directory.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise RequestError(f"impossible name {name!r} for a profile; use letters, digits, '-', '_' and '.'")


def make_directory(name: str, wanted: Path | None) -> Path:
    """The directory that measurements go to, made: the one wanted, else the profile's among the user's.

    Raises:
        RequestError: it cannot be made, or written to.
    """
    from costmodel.hardware import user_directory

    directory = wanted or user_directory() / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK):
        raise RequestError(f"cannot write to {directory}")
    return directory


def _slug(device: str) -> str:
    import torch

    from costmodel.hardware import profile_name

    said = "cpu" if device == "cpu" else torch.cuda.get_device_name(torch.device(device))
    return profile_name(said)
