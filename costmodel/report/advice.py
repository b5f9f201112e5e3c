"""The answer of a prediction: what to do, and the line of code that does it."""

from __future__ import annotations

from costmodel.report.types import EAGER, Report

PLAN = "plan"


def code_to_paste(report: Report) -> str:
    """The line of code that runs the model as the report advises; empty where it should stay as it is."""
    if report.verdict == "leave" or report.leaning == "leave" or report.best_mode == EAGER:
        return ""
    if report.best_mode == PLAN:
        return 'model = costmodel.apply(model, costmodel.Plan.load("plan.json"), inputs)'
    mode = "" if report.best_mode == "default" else f', mode="{report.best_mode}"'
    return f"model = torch.compile(model{mode})"
