"""Facts of a device, from the environment that its measurements were taken in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CPU = "cpu"
"""Name of the device in environments of CPUs."""
RESERVED = 0.05
"""Share of a GPU's memory by which drivers report more or less, for what they keep for themselves."""
MOST_DIGITS = 18
"""Digits of the largest number that is accepted: what fits in 64 bits."""
NOT_RECORDED: Mapping[str, Mapping[str, int]] = {
    "NVIDIA H200": {
        "multiprocessors": 132,  # NVIDIA H100 Tensor Core GPU Architecture whitepaper, SXM5; the H200 has the same GPU
        "memory_bytes": 143_771 << 20,  # `nvidia-smi --query-gpu=memory.total`, MiB
    },
    "NVIDIA H100 80GB HBM3": {
        "multiprocessors": 132,  # the same whitepaper
        "memory_bytes": 85_017_493_504,  # recorded with its later measurements (docs/data/vision_units_h100.parquet)
    },
}
"""Facts of devices by name, for profiles whose environment was recorded without them."""


def _number(fact: str, recorded: object) -> int:
    text = str(recorded)
    if not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS or int(text) == 0:
        raise ValueError(f"impossible {fact}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or the threads of a CPU.

    Attributes:
        name: as the driver reports it; `cpu` for a CPU.
        multiprocessors: streaming multiprocessors of a GPU; on a CPU the threads that share a kernel.
        memory_bytes: total memory of a GPU; None where it is not known.
        tf32: whether float32 matmuls compute in TF32, by `torch.set_float32_matmul_precision("high")`.
        cudnn_benchmark: whether cuDNN times its algorithms, by `torch.backends.cudnn.benchmark`.
    """

    name: str
    multiprocessors: int
    memory_bytes: int | None = None
    tf32: bool = False
    cudnn_benchmark: bool = False

    @classmethod
    def of(cls, environment: Mapping[str, object]) -> Device:
        """The device of an environment; one multiprocessor where nothing is known of it.

        Raises:
            ValueError: a recorded fact is not a whole number above 0; the message names it.
        """
        name = str(environment.get("device", ""))
        facts = {**NOT_RECORDED.get(name, {}), **environment}
        threads = facts.get("threads", 1)
        memory = facts.get("memory_bytes")
        return cls(
            name,
            _number("multiprocessors", facts.get("multiprocessors", threads)),
            None if memory is None else _number("memory_bytes", memory),
        )

    @property
    def is_cpu(self) -> bool:
        """Whether it is a CPU, which runs kernels itself and has neither launches nor cuDNN."""
        return self.name == CPU

    def is_like(self, other: Device) -> bool:
        """Whether measurements of both are of one device: by name, and by memory where it is known of both."""
        sizes = [size for size in (self.memory_bytes, other.memory_bytes) if size is not None]
        return self.name == other.name and max(sizes, default=0) <= (1 + RESERVED) * min(sizes, default=0)


ASSUMED_GPU = Device.of({"device": "NVIDIA H200"})
"""GPU that is assumed where no profile says which: for units of a graph and work lists of sweeps.

Its multiprocessors also decide the feature `split` of fused kernels, which profiles of CPUs have too.
"""
