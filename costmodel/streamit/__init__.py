"""Graph -> stream program in StreamIt's terms: rates, steady-state schedule, source text, and a run of it."""

from costmodel.streamit.interpret import run
from costmodel.streamit.lower import lower
from costmodel.streamit.rates import Rates, rates
from costmodel.streamit.schedule import Schedule, schedule
from costmodel.streamit.source_text import streamit
from costmodel.streamit.types import Filter, Pipeline, Separator, SplitJoin, Stream, filters

__all__ = [
    "Filter",
    "Pipeline",
    "Rates",
    "Schedule",
    "Separator",
    "SplitJoin",
    "Stream",
    "filters",
    "lower",
    "rates",
    "run",
    "schedule",
    "streamit",
]
