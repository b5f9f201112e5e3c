"""Random samples of units for the benchmarks of sweeps; the same on every machine."""

from __future__ import annotations

import random
import time

from collectors.workloads import convolution_space
from collectors.workloads.cases import MOST_BYTES, Case, size_bytes
from collectors.workloads.catalog import UNIT_WORKLOADS, unit_cases
from costmodel.errors import RequestError
from costmodel.ir import parse
from costmodel.profiles.profile import load_profile
from costmodel.training.dataset import read_frame

CAPTURE_SECONDS = 60.0


def by_unit(cases: list[Case]) -> list[list[Case]]:
    """Cases of each unit, in the order of first appearance; a case without a unit is a unit of its own."""
    units: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        units.setdefault((case.unit, "" if case.unit else case.key), []).append(case)
    return list(units.values())


def sample_units(hardware: str, units: int, seed: int, device: str) -> list[list[Case]]:
    """Cases of a random sample of a profile's units, in random order.

    Args:
        hardware: name of the profile.
        units: size of the sample.
        seed: of the sample.
        device: device to measure on; a CPU has no cuDNN.

    Raises:
        RequestError: the size is below one or above that of the dataset.
        UnknownHardwareError: there is no such profile.
    """
    frame, _ = read_frame(load_profile(hardware).path / "units.parquet")
    columns = frame[["graph", "runner", "unit", "way", "source"]].itertuples(index=False)
    cases = [Case(graph, runner, unit, way, source=source) for graph, runner, unit, way, source in columns]
    if not device.startswith("cuda"):
        cases = [case for case in cases if "cudnn" not in case.graph]
    known = by_unit(cases)
    if not 1 <= units <= len(known):
        raise RequestError(f"impossible number of units {units}; {hardware} has {len(known)}")
    return random.Random(seed).sample(known, units)  # noqa: S311 - a sample, not a secret


def conv_units(units: int, seed: int) -> list[list[Case]]:
    """Cases of a random sample of convolution units in every way, without units too large for a sweep."""
    drawn = [list(convolution_space.unit_cases(unit)) for unit in convolution_space.sample(units, seed)]
    return [cases for cases in drawn if max(size_bytes(parse(case.graph)) for case in cases) <= MOST_BYTES]


def quick_units(units: int, device: str) -> list[list[Case]]:
    """A few tiny units, for a trial run."""
    return by_unit(unit_cases(UNIT_WORKLOADS, device, quick=True, end=time.monotonic() + CAPTURE_SECONDS))[:units]
