"""Profile that predictions beside measurements use."""

from __future__ import annotations

from costmodel.profiles.profile import resolve_default
from study.experiment import Setup

CPU = "amd-epyc-2-threads"


def profile_name(setup: Setup) -> str:
    """Name of the profile of this machine's GPU, or of the default GPU if it has none; of a CPU for a CPU."""
    return resolve_default()[0] if setup.on_cuda else CPU
