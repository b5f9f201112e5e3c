"""Graph -> StreamIt program: rates, steady-state schedule, source text, and an interpreter."""

from costmodel.streamit.interpret import run
from costmodel.streamit.lower import lower
from costmodel.streamit.rates import Rates, rates
from costmodel.streamit.schedule import Schedule, schedule
from costmodel.streamit.source_text import streamit
from costmodel.streamit.types import Filter, FilterPipeline, FilterSplitJoin, Separator, Stream, filters

__all__ = [
    "Filter",
    "FilterPipeline",
    "FilterSplitJoin",
    "Rates",
    "Schedule",
    "Separator",
    "Stream",
    "filters",
    "lower",
    "rates",
    "run",
    "schedule",
    "streamit",
]
