"""Scores of units, by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from score_units import scored

from collectors.workloads.matmuls import linear_graph
from costmodel.predictor.estimate import Estimate


class TwelveMicroseconds:
    """A predictor that says 12 us, between 11 and 14, of any kernel; a kernel of no model is in its middle."""

    def predict(self, kernels: list[Any], positions: list[float]) -> list[Estimate]:
        assert positions == [0.25, 0.5, 0.5]
        return [Estimate(12.0, 11.0, 14.0, in_range=not kernel.tf32) for kernel in kernels]


def test_errors_and_shares_by_group_and_precision() -> None:
    graphs = [str(linear_graph(8, 16, 32, dtype, True)) for dtype in ("float32", "float32", "bfloat16")]
    rows = {"graph": graphs, "runner": ["aten_tf32", "aten_tf32", "aten"], "position": [0.25, None, None]}
    frame = pd.DataFrame({**rows, "device_us_p50": [10.0, 12.0, 15.0]})
    predictor: Any = TwelveMicroseconds()
    bfloat16, tf32 = scored(frame, predictor).to_dict("records")
    assert (tf32["group"], tf32["precision"], tf32["kernels"]) == ("gemm_tf32", "TF32", 2)
    assert (tf32["mean_error"], tf32["in_range"], tf32["inside"]) == pytest.approx((0.1, 0.0, 0.5))
    assert (bfloat16["group"], bfloat16["precision"]) == ("gemm", "bfloat16")
    assert (bfloat16["median_error"], bfloat16["in_range"], bfloat16["inside"]) == pytest.approx((0.2, 1.0, 0.0))
