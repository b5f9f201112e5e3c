"""What `costmodel memory` says: frozen records whose fields are the keys of its JSON. Bytes, microseconds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from costmodel.memory.alternatives import Alternative
from costmodel.memory.recompute import Recomputation
from costmodel.memory.regions import Regions
from costmodel.report.types import Unsupported

SCHEMA = 1
"""Version of the JSON; keys may be added under the same number, not renamed."""


@dataclass(frozen=True, slots=True)
class FeatureMaps:
    """What is kept for the backward pass of one kind: how many tensors, and their bytes."""

    kind: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Inference:
    """One forward pass without gradients.

    Attributes:
        peak_bytes: what `torch.cuda.max_memory_allocated` would say: parameters, buffers, inputs, workspace and the
            largest set of tensors alive at once.
        peak_at: the module that runs then.
        workspace_bytes: cuBLAS's, part of the peak.
        convolution_workspace_bytes: the most that cuDNN is predicted to take for a convolution; where the peak is one,
            part of it.
        convolution_allowance_bytes: the most that it may take, by the algorithm that it chooses.
        graph_pool_bytes: the private pool of a CUDA graph of the pass.
    """

    peak_bytes: int
    peak_at: str
    workspace_bytes: int
    convolution_workspace_bytes: int
    convolution_allowance_bytes: int
    graph_pool_bytes: int


@dataclass(frozen=True, slots=True)
class Training:
    """One training step.

    Attributes:
        peak_bytes, peak_at, workspace_bytes, convolution_allowance_bytes: as for inference.
        gradient_bytes: of the trained parameters.
        optimizer, optimizer_bytes: which one, and its state; part of the peak.
        between_bytes: alive between the forward and the backward pass.
        forward_us: predicted device time of the forward pass.
        feature_maps: by the kind of operator that made them.
        recomputation: what could be computed again, tensor by tensor.
        checkpointing: what `torch.utils.checkpoint` can do of it, module by module.
        alternatives: offloading and encoding.
    """

    peak_bytes: int
    peak_at: str
    workspace_bytes: int
    convolution_allowance_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    between_bytes: int
    forward_us: float
    feature_maps: tuple[FeatureMaps, ...]
    recomputation: Recomputation
    checkpointing: Regions
    alternatives: tuple[Alternative, ...]

    @property
    def feature_map_bytes(self) -> int:
        """Bytes that are kept for the backward pass."""
        return sum(item.nbytes for item in self.feature_maps)


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The memory of one model. A pass that was not asked for is None.

    Attributes:
        warnings: passes that need more memory than the device has, one line each.
    """

    model: str
    hardware: str
    batch_size: int
    input_shape: tuple[int, ...]
    precision: str
    layout: str
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    inference: Inference | None
    training: Training | None
    unsupported: tuple[Unsupported, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON's types, schema 1."""
        record = {"schema": SCHEMA, **dataclasses.asdict(self)}
        record["input_shape"] = list(self.input_shape)
        if self.training is not None:
            record["training"] |= {
                "feature_map_bytes": self.training.feature_map_bytes,
                "recomputation": _recomputation(self.training.recomputation),
            }
        return record


def _recomputation(found: Recomputation) -> dict[str, Any]:
    return {
        "tensors": len(found.values),
        "operators": len(found.ops),
        "stashed_before": found.stashed_before,
        "stashed_after": found.stashed_after,
        "saved_bytes": found.saved_bytes,
        "added_us": found.added_us,
    }
