"""Facts of a page that no report holds: command line, versions, the profile's ceilings and accuracy, drawings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.ir import Graph
    from costmodel.profiles.profile import Profile
    from costmodel.report import Report
    from costmodel.report.page import PageFacts, ProfileFacts


def page_facts(arguments: Sequence[str], reports: Sequence[Report], drawings: Sequence[str]) -> PageFacts:
    """Facts of a page of predictions.

    Args:
        arguments: the command line, without the program's name.
        reports: predictions, in the order of the page.
        drawings: their graphs as SVG, in the same order.
    """
    from costmodel.profiles.profile import load_profile
    from costmodel.report.page import PageFacts

    names = dict.fromkeys(report.hardware for report in reports)
    return PageFacts(
        command=shlex.join(["costmodel", *arguments]) if arguments else "",
        versions=_versions(),
        profiles={name: profile_facts(load_profile(name)) for name in names},
        drawings=drawings,
    )


def profile_facts(profile: Profile) -> ProfileFacts:
    """Facts of a profile: what was measured, how accurate it is, the device's ceilings."""
    from costmodel.profiles.summary import summary_document
    from costmodel.report.page import Ceilings, ProfileFacts

    about, *accuracy = summary_document(profile.name, profile.card).sections
    roofline = profile.predictor.roofline
    return ProfileFacts(
        about=[(str(name), str(value)) for name, value in about.rows],
        accuracy=accuracy,
        ceilings=Ceilings(roofline.bytes_per_us, dict(roofline.peak)),
    )


def drawing_of(graph: Graph, report: Report) -> str:
    """The graph as SVG for a page, each unit coloured by its speedup; empty for a graph too large for a page."""
    from costmodel.drawing import to_svg
    from costmodel.prediction.layers import find_units
    from costmodel.prediction.unit_speedups import unit_speedups
    from costmodel.profiles.profile import load_profile
    from costmodel.report.page import MOST_DRAWN

    if len(report.layers) > MOST_DRAWN:
        return ""
    profile = load_profile(report.hardware)
    units = find_units(graph, profile.device)
    return to_svg(graph, units, unit_speedups(graph, units, profile), report.model, embedded=True)


def _versions() -> list[tuple[str, str]]:
    import platform

    import torch

    from costmodel import __version__

    return [("costmodel", __version__), ("torch", str(torch.__version__)), ("Python", platform.python_version())]
