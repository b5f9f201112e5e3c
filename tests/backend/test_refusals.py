"""Captured graphs that are not replayed: random numbers, and results in the memory of others."""

from __future__ import annotations

import pytest

from costmodel.backend.refusals import reason_not_to_replay
from costmodel.ir import parse

ATTENTION = "scaled_dot_product_attention(query=%a0, key=%a0, value=%a0, attn_mask=None, dropout_p={}, is_causal=False)"


def graph(*lines: str):
    body = "\n".join(f"  {line}" for line in ("input %a0: float32[1,2,4,8]", *lines))
    return parse(f"graph _ {{\n{body}\n}}")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["%0 = relu(self=%a0) : float32[1,2,4,8]", "return %0"], ""),
        (["%0 = rand_like(self=%a0) : float32[1,2,4,8]", "return %0"], "it draws random numbers (rand_like)"),
        ([f"%0 = {ATTENTION.format(0.0)} : float32[1,2,4,8]", "return %0"], ""),
        (
            [f"%0 = {ATTENTION.format(0.1)} : float32[1,2,4,8]", "return %0"],
            "it draws random numbers (scaled_dot_product_attention)",
        ),
        (["%0 = relu(self=%a0) : float32[1,2,4,8]", "return %a0"], "a result is an input or a view of one (a0)"),
        (
            [
                "%0 = view(self=%a0, size=[64]) : float32[64]",
                "%1 = view(self=%0, size=[8, 8]) : float32[8,8]",
                "return %1",
            ],
            "a result is an input or a view of one (a0)",
        ),
        (
            [
                "%0 = relu(self=%a0) : float32[1,2,4,8]",
                "%1 = view(self=%0, size=[64]) : float32[64]",
                "return %0, %1",
            ],
            "two results share memory (0, 1)",
        ),
        (["%0 = relu(self=%a0) : float32[1,2,4,8]", "return %0, %0"], ""),
    ],
)
def test_reasons(lines, reason):
    assert reason_not_to_replay(graph(*lines)) == reason
