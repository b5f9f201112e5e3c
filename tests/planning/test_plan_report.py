"""Plans as documents: figures in words that agree with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.planning.plan_report import render_plan
from tests.support.sample_reports import plan


@pytest.mark.parametrize(
    ("rewrite", "said"),
    [
        ("fold_bias", "graph rewrites: fold_bias\n"),
        ("merge_sibling_convs:3", "graph rewrites: merge_sibling_convs at 1 place\n"),
        ("merge_sibling_convs:0,3,12", "graph rewrites: merge_sibling_convs at 3 places\n"),
    ],
)
def test_places_of_a_rewrite_are_counted(rewrite: str, said: str) -> None:
    assert said in render_plan(replace(plan(), rewrites=(rewrite,))).replace(";", "\n")


@pytest.mark.parametrize(("nbytes", "mebibytes"), [(2**20, 1), (2**20 + 1, 2), (5 * 2**20 - 1, 5)])
def test_memory_is_rounded_up_to_a_limit_that_the_plan_keeps(nbytes: int, mebibytes: int) -> None:
    assert f"a call needs about {mebibytes} MiB" in render_plan(replace(plan(), memory_bytes=nbytes))


@pytest.mark.parametrize(
    ("roofline_ms", "said"), [(0.4, "2.50x the roofline of its kernels, which is 0.400 ms"), (0.0, "")]
)
def test_distance_from_the_roofline(roofline_ms: float, said: str) -> None:
    """1 ms / 0.4 ms; of nothing to compute there is no distance."""
    text = render_plan(replace(plan(), roofline_ms=roofline_ms))
    assert said in text if said else "roofline" not in text
