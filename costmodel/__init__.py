"""What torch.compile will do to a vision model on a GPU, told without running it.

Importing this package imports nothing else: a public name loads its module when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.apply import apply as apply
    from costmodel.checkpoint import checkpointed as checkpointed
    from costmodel.errors import CostmodelError as CostmodelError
    from costmodel.hardware import list_profiles as list_profiles
    from costmodel.hardware import load_profile as load_profile
    from costmodel.memory.plan import CheckpointPlan as CheckpointPlan
    from costmodel.memory_analysis import analyze_memory as analyze_memory
    from costmodel.plan import Plan as Plan
    from costmodel.planning import plan as plan
    from costmodel.predict import predict as predict
    from costmodel.report import LayerPrediction as LayerPrediction
    from costmodel.report import ModePrediction as ModePrediction
    from costmodel.report import Report as Report
    from costmodel.report import render as render
    from costmodel.report.validation_types import Validation as Validation
    from costmodel.validate import validate as validate
    from costmodel.zoo import load as load_model

__version__ = "0.1.0"

_EXPORTS = {
    "analyze_memory": ("costmodel.memory_analysis", "analyze_memory"),
    "CheckpointPlan": ("costmodel.memory.plan", "CheckpointPlan"),
    "CostmodelError": ("costmodel.errors", "CostmodelError"),
    "LayerPrediction": ("costmodel.report", "LayerPrediction"),
    "ModePrediction": ("costmodel.report", "ModePrediction"),
    "Plan": ("costmodel.plan", "Plan"),
    "Report": ("costmodel.report", "Report"),
    "Validation": ("costmodel.report.validation_types", "Validation"),
    "apply": ("costmodel.apply", "apply"),
    "checkpointed": ("costmodel.checkpoint", "checkpointed"),
    "list_profiles": ("costmodel.hardware", "list_profiles"),
    "load_model": ("costmodel.zoo", "load"),
    "load_profile": ("costmodel.hardware", "load_profile"),
    "plan": ("costmodel.planning", "plan"),
    "predict": ("costmodel.predict", "predict"),
    "render": ("costmodel.report", "render"),
    "validate": ("costmodel.validate", "validate"),
}
"""Public name -> the module that holds it, and its name there."""

__all__ = [
    "CheckpointPlan",
    "CostmodelError",
    "LayerPrediction",
    "ModePrediction",
    "Plan",
    "Report",
    "Validation",
    "__version__",
    "analyze_memory",
    "apply",
    "checkpointed",
    "list_profiles",
    "load_model",
    "load_profile",
    "plan",
    "predict",
    "render",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Loads a public name on its first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)


class _Package(ModuleType):
    """This package's type: a submodule does not take the place of the public function of the same name.

    Python binds a submodule in its package when it is imported, so after `from costmodel.predict import ...` the name
    `costmodel.predict` would be the module, and a call of it an error.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _EXPORTS and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
