"""Settings of torch that the options of a command give, refused before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.cli import options

if TYPE_CHECKING:
    from costmodel.prediction.arithmetic import Arithmetic


def arithmetic_of(
    amp: options.Amp | None,
    matmul_precision: options.MatmulPrecision,
    cudnn_benchmark: bool,
    *,
    precision: options.Precision | None,
    profiles: Sequence[str],
) -> Arithmetic:
    """Settings of a command.

    Args:
        amp: `--amp`.
        matmul_precision: `--matmul-precision`.
        cudnn_benchmark: `--cudnn-benchmark`.
        precision: `--precision`, which some settings contradict.
        profiles: names of the profiles that are used.

    Raises:
        RequestError: the settings contradict the precision, or are not those of a profile's device.
    """
    from costmodel.prediction.arithmetic import Arithmetic
    from costmodel.profiles.profile import load_profile

    found = Arithmetic(amp and amp.value, matmul_precision.value, cudnn_benchmark)
    found.check_precision(precision and precision.value)
    for name in profiles:
        found.check_device(load_profile(name))
    return found
