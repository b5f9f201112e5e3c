"""Operators that detection, segmentation, video and generation models call, and classification models hardly do.

Each is measured as eager execution calls it and as torch.compile does, alone and with the pointwise operators that
follow it; sizes are those of published models (`vision_blocks`, `vision_reads`). The cases are written by

    python -m collectors.workloads.vision_operators cases.jsonl
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from collectors.workloads import vision_blocks, vision_reads
from collectors.workloads.cases import UnitCase, distinct, size_bytes, write_cases
from collectors.workloads.from_models import harvest
from collectors.workloads.vision_blocks import Block
from costmodel.capture.trace import capture
from costmodel.features import is_rare
from costmodel.ir import parse
from costmodel.training.dataset import kernel_of

BATCHES = (1, 8)
MOST_BYTES = 1 << 30
"""Size of the tensors of a case above which it is left out: it would take much of the time."""
SEED = 11
SOURCE = "vision"
"""Beginning of the cases' `source`; the block follows."""


def cases(device: str = "cuda") -> list[UnitCase]:
    """Cases of every block, shuffled so that a sweep that is cut short has some of each."""
    found: list[UnitCase] = []
    for block in (*vision_blocks.blocks(), *vision_reads.blocks()):
        for dtype in (torch.float32, torch.float16)[: 1 + block.half]:
            for batch in BATCHES:
                found += cases_of(block, dtype, batch, device)
    kept = [case for case in distinct(found) if size_bytes(parse(case.graph)) <= MOST_BYTES]
    random.Random(SEED).shuffle(kept)  # noqa: S311 - repeatable on purpose
    return kept


def cases_of(block: Block, dtype: torch.dtype, batch: int, device: str) -> Iterator[UnitCase]:
    """Kernels of a block in eager execution and under torch.compile, as far as they are of interest."""
    inputs = []
    for named, shape in block.inputs:
        kind = getattr(torch, named) if named else dtype
        inputs.append(torch.empty((shape[0] * batch, *shape[1:]), dtype=kind, device="meta"))
    source = f"{SOURCE}-{block.source}"
    graph = capture(block.make().eval().to(dtype), tuple(inputs), source, partial=True)
    for case in harvest(graph, source, device):
        if block.all_kernels or is_rare(kernel_of(case.graph, case.runner)):
            yield replace(case, position=None)


def main() -> None:
    """Write the cases to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    write_cases(parser.parse_args().cases, cases())


if __name__ == "__main__":
    main()
