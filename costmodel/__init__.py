"""Predict what torch.compile does to a vision model on a GPU, without running the model.

    report = costmodel.predict("resnet50", batch_size=32)     # or a module and its inputs
    print(report)                                             # verdict, modes, module tree; .modes, .layers, .kernels
    report.tree(), report.to_frame("kernels"), report.to_dict(), report.plot.timeline()
    plan = costmodel.plan(module, inputs)                     # the fastest way to run each part; .save, Plan.load
    fast = costmodel.apply(module, plan, inputs)              # a module that runs so
    fast = torch.compile(module, backend="costmodel")         # each graph planned, compiled or left eager
    costmodel.explain_backend(fast)                           # which, and why
    costmodel.validate(module, inputs, plan=plan)             # measured beside predicted, on a machine with the GPU
    costmodel.analyze_memory(module, inputs)                  # peaks and saved activations; checkpointed applies a plan
    costmodel.list_profiles(), costmodel.load_profile(name)   # known devices
    costmodel.load_model(name), costmodel.render(report, "html")

`help(costmodel.predict)` and so on describe each function. Every error is a `costmodel.CostmodelError`. Importing this
package imports nothing else: a public name loads its module on first use, and `dir(costmodel)` lists them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.backend.explain import explain_backend as explain_backend
    from costmodel.errors import CostmodelError as CostmodelError
    from costmodel.execution.planned_module import apply as apply
    from costmodel.measurement.validation import validate as validate
    from costmodel.measurement.validation_report import Validation as Validation
    from costmodel.memory.analysis import analyze_memory as analyze_memory
    from costmodel.memory.checkpoint import checkpointed as checkpointed
    from costmodel.memory.checkpoint_plan import CheckpointPlan as CheckpointPlan
    from costmodel.planning.api import plan as plan
    from costmodel.planning.plan import Plan as Plan
    from costmodel.prediction.predict import predict as predict
    from costmodel.profiles.profile import list_profiles as list_profiles
    from costmodel.profiles.profile import load_profile as load_profile
    from costmodel.report import LayerPrediction as LayerPrediction
    from costmodel.report import ModePrediction as ModePrediction
    from costmodel.report import Report as Report
    from costmodel.report import render as render
    from costmodel.zoo import load as load_model  # noqa: F401 - public under another name

__version__ = "0.1.0"

_EXPORTS = {
    "analyze_memory": ("costmodel.memory.analysis", "analyze_memory"),
    "CheckpointPlan": ("costmodel.memory.checkpoint_plan", "CheckpointPlan"),
    "CostmodelError": ("costmodel.errors", "CostmodelError"),
    "LayerPrediction": ("costmodel.report", "LayerPrediction"),
    "ModePrediction": ("costmodel.report", "ModePrediction"),
    "Plan": ("costmodel.planning.plan", "Plan"),
    "Report": ("costmodel.report", "Report"),
    "Validation": ("costmodel.measurement.validation_report", "Validation"),
    "apply": ("costmodel.execution.planned_module", "apply"),
    "checkpointed": ("costmodel.memory.checkpoint", "checkpointed"),
    "explain_backend": ("costmodel.backend.explain", "explain_backend"),
    "list_profiles": ("costmodel.profiles.profile", "list_profiles"),
    "load_model": ("costmodel.zoo", "load"),
    "load_profile": ("costmodel.profiles.profile", "load_profile"),
    "plan": ("costmodel.planning.api", "plan"),
    "predict": ("costmodel.prediction.predict", "predict"),
    "render": ("costmodel.report", "render"),
    "validate": ("costmodel.measurement.validation", "validate"),
}
"""Public name -> its module, and its name in the module."""


def __getattr__(name: str) -> Any:
    """Load a public name on its first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*_EXPORTS, "__version__"])


class _Package(ModuleType):
    """Type of this package, in which no submodule replaces a public function of the same name.

    Python binds an imported submodule as an attribute of its package: a submodule `costmodel.predict` would replace the
    function `costmodel.predict`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _EXPORTS and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
