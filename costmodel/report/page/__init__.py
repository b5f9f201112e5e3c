"""Reports as one HTML page that needs no network: answer, modes, timeline, modules, roofline, graph, accuracy."""

from costmodel.report.page.facts import MOST_DRAWN, NO_FACTS, Ceilings, PageFacts, ProfileFacts

__all__ = ["MOST_DRAWN", "NO_FACTS", "Ceilings", "PageFacts", "ProfileFacts"]
