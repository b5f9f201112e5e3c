"""Kernels whose float32 matmuls may round their operands to TF32."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from costmodel.ir import flops, operators
from costmodel.kernels.kernel import Kernel


def in_tf32(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The kernels as they are with `torch.set_float32_matmul_precision("high")`: float32 matmuls compute in TF32.

    Convolutions are unchanged: cuDNN may use TF32 by default. So is fused attention: its float32 kernel multiplies
    three parts of each operand on the tensor cores at any setting (`OpMultiplyAddFastF32` in ATen's
    mem_eff_attention/gemm_kernel_utils.h).
    """
    return tuple(replace(kernel, tf32=True) if _is_float32_matmul(kernel) else kernel for kernel in kernels)


def _is_float32_matmul(kernel: Kernel) -> bool:
    anchor = kernel.anchor
    is_matmul = kernel.backend != "triton" and operators.lookup(anchor).flops is flops.matmul_flops
    return is_matmul and anchor.type.dtype == "float32"
