"""Settings of torch that decide in which precision a model computes, beside the dtypes of its parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodel.errors import RequestError
from costmodel.ir import HALF_PRECISION
from costmodel.profiles.profile import Profile

AMP = HALF_PRECISION
"""Precisions of autocast."""
HIGHEST = "highest"
MATMUL_PRECISIONS = (HIGHEST, "high", "medium")
"""Precisions of `torch.set_float32_matmul_precision`; on a GPU `medium` does what `high` does: matmuls in TF32."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Settings that a model runs under.

    Attributes:
        amp: precision of an autocast region around each call; None for none.
        matmul_precision: precision of float32 matmuls; above `highest` their operands are rounded to TF32, with 10 bits
            of mantissa instead of 23.
        cudnn_benchmark: whether cuDNN times its algorithms for each convolution, instead of choosing one by rules.
    """

    amp: str | None = None
    matmul_precision: str = HIGHEST
    cudnn_benchmark: bool = False

    @property
    def has_tf32(self) -> bool:
        """Whether float32 matmuls compute in TF32."""
        return self.matmul_precision != HIGHEST

    def check_precision(self, precision: str | None) -> None:
        """Refuse settings that contradict the precision that parameters are converted to.

        Raises:
            RequestError: names both.
        """
        if precision in (None, "float32"):
            return
        if self.amp is not None:
            raise RequestError(
                f"amp {self.amp} casts a float32 model, and precision {precision} leaves none; give one of the two"
            )
        if self.has_tf32:
            raise RequestError(
                f"matmul precision {self.matmul_precision} is of float32 matmuls, and precision {precision} leaves "
                "none; give one of the two"
            )

    def check_device(self, profile: Profile) -> None:
        """Refuse settings that a CPU does not have.

        Raises:
            RequestError: names the setting and the profile.
        """
        given = {"amp": self.amp, "matmul precision": self.has_tf32, "cudnn benchmark": self.cudnn_benchmark}
        name = next((name for name, is_set in given.items() if is_set), None)
        if name is not None and profile.on_cpu:
            raise RequestError(
                f"{name} is predicted for GPUs, and {profile.name} is a CPU; leave it out or choose another "
                "--hardware, such as nvidia-h200"
            )

    def on(self, profile: Profile) -> Profile:
        """The profile of a device under these settings."""
        return profile.on(replace(profile.device, tf32=self.has_tf32, cudnn_benchmark=self.cudnn_benchmark))

    @property
    def words(self) -> str:
        """The settings that are not torch's defaults, for a headline."""
        parts = [f"amp {self.amp}"] if self.amp else []
        parts += ["matmuls in TF32"] if self.has_tf32 else []
        return ", ".join([*parts, *(["cudnn.benchmark"] if self.cudnn_benchmark else [])])


DEFAULT = Arithmetic()
"""Torch's defaults."""
