"""Precision of float32 matmuls for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set `torch.set_float32_matmul_precision` within the block; it is restored afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
