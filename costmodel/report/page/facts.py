"""Facts that a page shows beside a report: its command, versions, the profile's ceilings and accuracy, drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.report.document import Section

MOST_DRAWN = 1_000
"""Most layers of a report whose graph is drawn on a page."""

Fact = tuple[str, str]
"""Name and value."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Roofline of a device.

    Attributes:
        bytes_per_us: memory bandwidth.
        flops_per_us: arithmetic ceilings by kind and element type, such as `conv.float32`.
    """

    bytes_per_us: float
    flops_per_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """Facts of the profile that a report was predicted with.

    Attributes:
        about: what was measured, and on which device.
        accuracy: tables of errors and of interval coverage.
        ceilings: the device's roofline; None where it is not known.
    """

    about: Sequence[Fact] = ()
    accuracy: Sequence[Section] = ()
    ceilings: Ceilings | None = None


@dataclass(frozen=True, slots=True)
class PageFacts:
    """Facts beside the reports of a page; every one may be missing.

    Attributes:
        command: the command line that made the page.
        versions: names and versions of the software.
        profiles: facts by name of the profile.
        drawings: an SVG of each report's graph, in the order of the reports; empty for one without.
    """

    command: str = ""
    versions: Sequence[Fact] = ()
    profiles: Mapping[str, ProfileFacts] = field(default_factory=dict)
    drawings: Sequence[str] = ()


NO_FACTS = PageFacts()
"""A page of reports alone."""
