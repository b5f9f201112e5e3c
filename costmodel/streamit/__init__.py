"""Graph -> stream program in StreamIt's terms: rates, steady-state schedule, source text, and a run of it."""

from costmodel.stream_program.interpret import run
from costmodel.stream_program.lower import lower
from costmodel.stream_program.rates import Rates, rates
from costmodel.stream_program.schedule import Schedule, schedule
from costmodel.stream_program.streamit import streamit
from costmodel.stream_program.types import Filter, Pipeline, Separator, SplitJoin, Stream, filters

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
