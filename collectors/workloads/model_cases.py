"""Whole-model cases: model, batch size, precision and layout as a dict, and its key."""

from __future__ import annotations

from typing import Any

WholeModelCase = dict[str, Any]
"""`model` (a spec of costmodel.zoo), `batch_size`, `precision`, `layout`; `img_size` if it is not the model's own."""


def case_key(case: WholeModelCase) -> str:
    """One line that identifies a case: `resnet50@32 float16 nchw`."""
    size = f" {case['img_size']}px" if case.get("img_size") else ""
    return f"{case['model']}@{case['batch_size']} {case['precision']} {case['layout']}{size}"
