"""The summary of a profile, `card.json`: its fields that predictions use, and its formats."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from costmodel.errors import ProfileError
from costmodel.records import Duration, Format, Shallow, Text

CARD = "card.json"
"""Name of the file."""
CARD_SCHEMA = 1
CALIBRATED = "_calibrated"
"""Suffix of the names of intervals for a calibrated host."""
HOST_COSTS = frozenset({"eager_host", "default_host", "graph_host", "compile", "compile_warm"})
"""Cost tables in host time, which are in proportion to the host's speed."""
Cost = Annotated[float, Meta(ge=-1e8, le=1e8)]
"""A fitted coefficient, microseconds or a factor. One of several may be negative: only their sum was measured."""
DeviceCost = Annotated[float, Meta(ge=0, le=1e8)]
"""Device time of a launch or a gap beyond the kernels themselves, microseconds."""
HalfWidth = Annotated[float, Meta(ge=0, le=20)]
"""Half-width of the prediction interval of a logarithm: at most a factor of e^20."""


Distance = Annotated[float, Meta(ge=0, le=1e6)]
"""Distance of two kernels in scaled features."""
Factor = Annotated[float, Meta(ge=0, le=100)]
"""Factor of a half-width."""


class HostSummary(msgspec.Struct, frozen=True):
    """Host probes of the machines that a profile was measured on; empty for a CPU's profile.

    Attributes:
        probe_us: duration of the probe on the profile's host, the least disturbed machine.
        machines_us: duration of the probe on each machine.
        range_us: least and largest duration that intervals for an uncalibrated host cover; None in a profile of one
            host, or of an earlier version, whose intervals have a width for uncalibrated hosts instead.
    """

    probe_us: Duration | None = None
    machines_us: tuple[Duration, ...] = ()
    range_us: tuple[Duration, Duration] | None = None


class ErrorCurveTable(msgspec.Struct, frozen=True):
    """Error curve of a group of kernels, as `costmodel.predictor.error_curve.ErrorCurve`."""

    distances: Annotated[tuple[Distance, ...], Meta(min_length=1, max_length=1000)]
    factors: Annotated[tuple[Factor, ...], Meta(min_length=1, max_length=1000)]

    def __post_init__(self) -> None:
        """Refuse distances or factors that fall, which msgspec reports as an invalid value."""
        for name, values in (("distances", self.distances), ("factors", self.factors)):
            if any(after < before for before, after in itertools.pairwise(values)):
                raise ValueError(f"{name} fall")
        if len(self.distances) != len(self.factors):
            raise ValueError("as many distances as factors are needed")


class CostTables(msgspec.Struct, frozen=True):
    """Tables of fitted costs, with the names of `costmodel.timeline.cost_tables`."""

    eager_host: dict[str, Cost] = {}
    eager_device: dict[str, DeviceCost] = {}
    eager_wall: dict[str, DeviceCost] = {}
    eager_serial: dict[str, Cost] = {}
    default_host: dict[str, Cost] = {}
    default_device: dict[str, DeviceCost] = {}
    default_wall: dict[str, DeviceCost] = {}
    default_serial: dict[str, Cost] = {}
    graph_host: dict[str, Cost] = {}
    compile: dict[str, Cost] = {}
    compile_warm: dict[str, Cost] = {}


class ProfileSummary(msgspec.Struct, frozen=True):
    """The fields of a summary that predictions use; the rest is only shown.

    Attributes:
        schema: version of the format.
        environment: hardware and software that the profile was measured with.
        predictor_sha256: hash of the predictor's file; empty for a profile without.
        whole_models_sha256: hash of the file of the residual model; unset for a profile without.
        host: host probes.
        costs: fitted costs by table.
        intervals: half-widths of 90 % prediction intervals of logarithms, by quantity and mode.
        error_curves: growth of kernels' errors with distance, by group.
    """

    schema: int
    environment: dict[str, Text] = {}
    predictor_sha256: Text = ""
    whole_models_sha256: Text | msgspec.UnsetType = msgspec.UNSET
    host: HostSummary = HostSummary()
    costs: CostTables = CostTables()
    intervals: dict[str, dict[str, HalfWidth]] = {}
    error_curves: dict[str, ErrorCurveTable] = {}


SHOWN = Format(
    dict[str, Shallow], "a profile summary", ProfileError, "train the profile again", (CARD_SCHEMA,), 16 << 20
)
"""The file as it is shown: any fields."""
USED = Format(ProfileSummary, "a profile summary", ProfileError, "train the profile again", (CARD_SCHEMA,))
"""The file as predictions use it."""


def at_speed(name: str, table: Mapping[str, float], host_speed: float) -> Mapping[str, float]:
    """A cost table for a host of another speed; a table that is not in host time stays as it is."""
    if name not in HOST_COSTS or host_speed == 1.0:
        return table
    return {cost: us / host_speed for cost, us in table.items()}
