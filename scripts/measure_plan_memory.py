"""Memory that plans are predicted to need beside what the allocator holds while they run, on a machine with a GPU.

python scripts/measure_plan_memory.py -o plan_memory.jsonl              the twelve models, batch 1 and 32, float32
python scripts/measure_plan_memory.py googlenet -b 32 --precision float16

Held is what the allocator has taken from the device once unused memory is given back: a CUDA graph keeps its pool, used
or not. Allocated is the most that tensors had at once in a call; what lives in the graph's pool is not among it.
"""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path
from typing import Any

import torch

import costmodel
from costmodel.comparison import MODELS
from costmodel.zoo import load_real

MIB = 2**20


def released() -> int:
    """Bytes that the allocator holds once it has given back what nothing uses."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def measured(model: str, batch_size: int, precision: str, hardware: str) -> dict[str, Any]:
    """One case: predicted, held and allocated, MiB."""
    torch._C._cuda_clearCublasWorkspaces()
    before = released()
    loaded = load_real(model, torch.device("cuda"), batch_size=batch_size, precision=precision)
    plan = costmodel.plan(loaded.module, loaded.inputs, hardware=hardware, model_name=model)
    example = tuple(loaded.inputs)
    fast = costmodel.apply(loaded.module, plan, example, check=False)
    with torch.no_grad():
        fast(*example)
        held = released() - before
        torch.cuda.reset_peak_memory_stats()
        kept = fast(*example)
    assert plan.memory_bytes is not None
    found = {"predicted": plan.memory_bytes, "held": held, "allocated": torch.cuda.max_memory_allocated()}
    del kept
    case = {"model": model, "batch_size": batch_size, "precision": precision, "moves": plan.moves, "lanes": plan.lanes}
    return case | {f"{name}_mib": round(nbytes / MIB, 1) for name, nbytes in found.items()}


def main() -> None:
    """A line a case, printed and written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-b", "--batch-size", type=int, action="append")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = []
    for batch_size in args.batch_size or (1, 32):
        for model in args.models:
            rows.append(json.dumps(measured(model, batch_size, args.precision, args.hardware)))
            print(rows[-1], flush=True)
            if args.output:
                args.output.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
