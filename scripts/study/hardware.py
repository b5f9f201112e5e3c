"""Profile that predictions beside measurements use."""

from __future__ import annotations

from collectors.processes.environment import environment
from costmodel.profiles.profile import resolve_default
from study.experiment import Setup

CPUS = {"Intel": "intel-xeon-16-threads"}
"""Word in a CPU's name -> profile; another one has OTHER_CPU."""
OTHER_CPU = "amd-epyc-2-threads"


def profile_name(setup: Setup) -> str:
    """Name of the profile of this machine's GPU, or of the default GPU if it has none; of a like CPU for a CPU."""
    if setup.on_cuda:
        return resolve_default()[0]
    cpu = environment("cpu")["host_cpu"]
    return next((name for word, name in CPUS.items() if word in cpu), OTHER_CPU)
