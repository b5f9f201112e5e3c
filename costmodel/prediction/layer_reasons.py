"""Phrases that say why a layer gains or loses time when it is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.features import group_of
from costmodel.ir import operators
from costmodel.kernels.kernel import COPY
from costmodel.prediction.timed_kernels import Part

SAME = 0.03
"""Largest relative change of a layer's time that counts as none: it is within the noise of a measurement."""
COPIES, CONVOLUTION, MATMUL, OTHER = "copies", "conv", "gemm", "other"

_GAINS = {
    COPIES: "fewer copies",
    CONVOLUTION: "faster convolution",
    MATMUL: "faster matmul call",
}
_LOSSES = {
    COPIES: "layout copies",
    CONVOLUTION: "slower convolution",
    MATMUL: "slower matmul call",
    OTHER: "slower generated kernel",
}


def reason_of(before: Sequence[Part], after: Sequence[Part]) -> str:
    """Phrase for the largest change in the direction of the layer's own; empty for a layer without kernels.

    Args:
        before: parts of the eager kernels that serve the layer.
        after: parts of the compiled kernels.
    """
    if not before or not after:
        return _one_sided(before, after)
    was, now = by_part(before), by_part(after)
    saved = {part: was[part] - now[part] for part in was}
    change = sum(saved.values())
    if abs(change) <= SAME * sum(was.values()):
        return "same library call" if _calls(before) == _calls(after) else "no net change"
    cause = min(saved, key=lambda part: saved[part]) if change < 0 else max(saved, key=lambda part: saved[part])
    if cause == CONVOLUTION and _relaid(before, after):
        return f"{'slower' if change < 0 else 'faster'} in channels_last"
    if change < 0:
        return _LOSSES[cause]
    return _GAINS.get(cause) or _fusion(before, after)


def _one_sided(before: Sequence[Part], after: Sequence[Part]) -> str:
    """Phrase for a layer with kernels in one of the passes only."""
    if before:
        return "folded into other kernels"
    return "work of other layers" if any(part.kernel.kind != COPY for part in after) else _LOSSES[COPIES] * bool(after)


def by_part(parts: Sequence[Part]) -> Mapping[str, float]:
    """Microseconds of kernels by part: copies, convolutions, matmuls, other kernels."""
    found = dict.fromkeys((COPIES, CONVOLUTION, MATMUL, OTHER), 0.0)
    for part in parts:
        name = COPIES if part.kernel.kind == COPY else group_of(part.kernel)
        found[name if name in found else OTHER] += part.us
    return found


def _relaid(before: Sequence[Part], after: Sequence[Part]) -> bool:
    """Whether a convolution runs in channels_last only when it is compiled."""
    was, now = (
        [part.kernel.anchor.type.layout == "nhwc" for part in parts if group_of(part.kernel) == CONVOLUTION]
        for parts in (before, after)
    )
    return any(now) and not any(was)


def _calls(parts: Sequence[Part]) -> list[str]:
    return [part.kernel.anchor.base for part in parts]


def _fusion(before: Sequence[Part], after: Sequence[Part]) -> str:
    """Phrase for operators that take less time in generated kernels."""
    alone = [part for part in before if group_of(part.kernel) not in (CONVOLUTION, MATMUL, "attention")]
    names = list(dict.fromkeys(operators.kind_of(part.kernel.anchor) for part in alone))
    if not names:
        return "faster generated kernel"
    shown = names if len(names) <= 3 else [*names[:2], "..."]
    is_fused = len(alone) > 1 or any(_is_shared(part) for part in after)
    return f"{'+'.join(shown)} {'fused' if is_fused else 'in a generated kernel'}"


def _is_shared(part: Part) -> bool:
    return part.kernel.backend == "triton" and part.share < 1.0
