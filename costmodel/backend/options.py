"""Options of the backend: `torch.compile(model, backend="costmodel", options={...})`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel import checks
from costmodel.checks import Rule, shown
from costmodel.errors import RequestError
from costmodel.profiles.profile import load_profile

NUMERICS = ("default", "strict")
RULES: Mapping[str, Rule] = {
    "hardware": checks.optional(checks.profile_name),
    "calls": checks.positive,
    "memory_limit": checks.positive,
    "numerics": checks.one_of(NUMERICS),
}
"""Rule of each option by name."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Options of the backend.

    Attributes:
        hardware: name of the profile that predicts; None for that of the graph's own device. Without one, candidates
            are measured.
        calls: number of calls within which compiling should break even; infinite for the least latency.
        memory_limit: most bytes that a call may need as predicted, with weights and inputs.
        numerics: `default`, whose outputs are about as close to float64's as eager execution's; or `strict`, whose
            outputs are no further from float64's than eager execution's, and where no weights are folded.
    """

    hardware: str | None = None
    calls: float = math.inf
    memory_limit: float = math.inf
    numerics: str = "default"

    @classmethod
    def of(cls, options: Any) -> BackendOptions:
        """Check the options of a call of torch.compile.

        Raises:
            RequestError: there is no such option, or its value is of the wrong kind.
            UnknownHardwareError: there is no such profile.
        """
        given = {} if options is None else options
        if not isinstance(given, Mapping):
            raise RequestError(f"options must be a dict, not {shown(given)}")
        if odd := [name for name in given if name not in RULES]:
            raise RequestError(f"the backend costmodel has no option {odd[0]!r}; there are: {', '.join(RULES)}")
        if fault := next((f"{name} {fault}" for name, value in given.items() if (fault := RULES[name](value))), None):
            raise RequestError(f"the option {fault}")
        found = cls(**given)
        if found.hardware is not None:
            load_profile(found.hardware)
        return found

    @property
    def is_strict(self) -> bool:
        """Whether nothing may reassociate beyond the error of eager execution."""
        return self.numerics == "strict"
