"""Decompositions of operators into simpler ones, as TorchInductor applies them before lowering.

One function an operator, listed in `REWRITES`. Each returns operators that compute the same value, the last under the
old name. All are ATen operators, so that a rewritten graph can be run; only `concat_in_place` is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from costmodel.inductor.compilation import Compilation
from costmodel.ir import HALF_PRECISION, Arg, Op, Ref, TensorType, operators
from costmodel.ir.builder import Rewrite, Site, rewritten
from costmodel.ir.op_table import Role
from costmodel.kernels.attention import unrolled
from costmodel.kernels.composites import divided, rms_norm_parts
from costmodel.kernels.convolution_gradients import divide_convolution_gradients

POINTWISE_CAT_INPUTS = 8
"""`config.max_pointwise_cat_inputs`: up to so many tensors are concatenated in the kernel that reads them."""


def unroll_attention(compilation: Compilation) -> Compilation:
    """Replace multi-head attention by the operators that Dynamo traces."""
    return compilation.with_graph(unrolled(compilation.graph))


def divide_composites(compilation: Compilation) -> Compilation:
    """Replace composite operators by the operators that ATen's dispatcher shows to Inductor on the device."""
    return compilation.with_graph(divided(compilation.graph, compilation.target.on_cpu))


def divide_gradients(compilation: Compilation) -> Compilation:
    """Replace the backward pass of each convolution by a library call for each gradient."""
    return compilation.with_graph(divide_convolution_gradients(compilation.graph))


def decompose(compilation: Compilation) -> Compilation:
    """Apply every decomposition."""
    return compilation.with_graph(rewritten(compilation.graph, CPU_REWRITES if compilation.target.on_cpu else REWRITES))


def peel_convolution_bias(site: Site) -> list[Op] | None:
    """convolution(x, w, b) = convolution(x, w) + b: Inductor's lowering, "cudnn is slower with it"."""
    op = site.op
    bias = site.ref("bias")
    if bias is None:
        return None
    bare = site.add("convolution", op.types, **{key: None if key == "bias" else value for key, value in op.args})
    shape = (op.type.shape[1], *(1 for _ in op.type.shape[2:]))
    view = site.add("view", TensorType(op.type.dtype, shape), self=bias, size=shape)
    return site.finish("add.Tensor", self=bare, other=view)


def unfuse_addmm(site: Site) -> list[Op] | None:
    """addmm(b, x, w) = mm(x, w) + b where every use is pointwise: Inductor's `unfuse_bias_add_to_pointwise`.

    In half precision addmm stays, because mm would round before the bias is added (Inductor's
    `keep_addmm_fused_for_half_dtypes`).
    """
    op = site.op
    if op.type.dtype in HALF_PRECISION:
        return None
    bias = site.ref("self")
    scaled = any(op.arg(factor, 1) != 1 for factor in ("alpha", "beta"))
    if bias is None or scaled or not only_pointwise_uses(site):
        return None
    product = site.add("mm", op.types, self=op.arg("mat1"), mat2=op.arg("mat2"))
    return site.finish("add.Tensor", self=product, other=bias)


def only_pointwise_uses(site: Site) -> bool:
    """Whether every use is pointwise, through views (Inductor's `is_pointwise_use`); a returned value is not."""
    pending = [site.op.name]
    while pending:
        name = pending.pop()
        users = site.users[name]
        if not users or name in site.returned:
            return False
        views = [user.name for user in users if operators.lookup(user).role is Role.VIEW]
        pointwise = [user for user in users if operators.lookup(user).role is Role.POINTWISE]
        if len(views) + len(pointwise) < len(users):
            return False
        pending += views
    return True


def expand_layer_norm(site: Site) -> list[Op] | None:
    """layer_norm(x) = (x - mean) * rsqrt(var + eps) * weight + bias."""
    op = site.op
    source = site.ref("input")
    axes = op.arg("normalized_shape")
    if source is None or not isinstance(axes, tuple):
        return None
    dims = tuple(range(-len(axes), 0))
    result = _normalise(site, source, op.type, op.types[1], dims, op.arg("eps", 1e-5))
    return _scale(site, result, op.type, site.ref("weight"), site.ref("bias"))


def expand_group_norm(site: Site) -> list[Op] | None:
    """group_norm(x): statistics over the channels of each group, then as in layer norm."""
    source, groups = site.ref("input"), site.op.arg("group")
    if source is None or not isinstance(groups, int):
        return None
    op = site.op
    batch, channels = op.type.shape[:2]
    together = channels // max(1, groups)
    grouped = TensorType(op.type.dtype, (batch, groups, together, op.type.numel // max(1, batch * groups * together)))
    view = site.add("view", grouped, self=source, size=grouped.shape)
    statistics = TensorType(op.types[1].dtype, (batch, groups, 1, 1))
    result = _normalise(site, view, grouped, statistics, (-2, -1), op.arg("eps", 1e-5))
    back = site.add("view", op.type, self=result, size=op.type.shape)
    shape = (channels, *(1 for _ in op.type.shape[2:]))
    factors = [
        site.add("view", TensorType(op.type.dtype, shape), self=ref, size=shape) if ref else None
        for ref in (site.ref("weight"), site.ref("bias"))
    ]
    return _scale(site, back, op.type, *factors)


def expand_batch_statistics(site: Site) -> list[Op] | None:
    """batch_norm(x) by statistics of the batch, as in layer norm; so is instance norm, of one image of all channels."""
    op, source = site.op, site.ref("input")
    if source is None or op.arg("training") is not True:
        return None
    shape = tuple(size if axis == 1 else 1 for axis, size in enumerate(op.type.shape))
    dims = tuple(axis for axis, size in enumerate(op.type.shape) if axis != 1 and size > 1) or (0,)
    dtype = op.types[1].dtype if len(op.types) > 1 else op.type.dtype
    moment = TensorType(dtype, shape)
    result = _centred(site, source, op.type, moment, dims, op.arg("eps", 1e-5))
    factors = [
        site.add("view", TensorType(site.graph.type_of(ref).dtype, shape), self=ref, size=shape) if ref else None
        for ref in (site.ref("weight"), site.ref("bias"))
    ]
    return _scale(site, result, op.type, *factors)


def _normalise(
    site: Site, source: Ref, kind: TensorType, statistics: TensorType, dims: tuple[int, ...], eps: Arg
) -> Ref:
    shape = (*kind.shape[: len(kind.shape) - len(dims)], *(1 for _ in dims))
    return _centred(site, source, kind, TensorType(statistics.dtype, shape), dims, eps)


def _centred(site: Site, source: Ref, kind: TensorType, moment: TensorType, dims: tuple[int, ...], eps: Arg) -> Ref:
    """(x - mean) * rsqrt(var + eps)."""
    stats = site.add("var_mean.correction", (moment, moment), self=source, dim=dims, correction=0, keepdim=True)
    centred = site.add("sub.Tensor", kind, self=source, other=Ref(stats.name, 1))
    shifted = site.add("add.Scalar", moment, self=stats, other=eps)
    scale = site.add("rsqrt", moment, self=shifted)
    return site.add("mul.Tensor", kind, self=centred, other=scale)


def _scale(site: Site, result: Ref, kind: TensorType, weight: Ref | None, bias: Ref | None) -> list[Op]:
    if weight is not None:
        result = site.add("mul.Tensor", kind, self=result, other=weight)
    if bias is not None:
        return site.finish("add.Tensor", self=result, other=bias)
    return site.finish("mul.Scalar", self=result, other=1.0)


def expand_softmax(site: Site) -> list[Op] | None:
    """softmax(x) = exp(x - max) / sum(exp(x - max)); also for `_safe_softmax`, without its guard for masked rows."""
    op = site.op
    source, dim = site.ref("self"), op.arg("dim", -1)
    if source is None or not isinstance(dim, int) or not op.type.shape:
        return None
    shape = list(op.type.shape)
    shape[dim] = 1
    row = TensorType(op.type.dtype, tuple(shape))
    largest = site.add("amax", row, self=source, dim=(dim,), keepdim=True)
    shifted = site.add("sub.Tensor", op.type, self=source, other=largest)
    powers = site.add("exp", op.type, self=shifted)
    total = site.add("sum.dim_IntList", row, self=powers, dim=(dim,), keepdim=True)
    return site.finish("div.Tensor", self=powers, other=total)


def copy_many_into_places(site: Site) -> list[Op] | None:
    """Apply `copy_into_places` to many inputs; a few are concatenated inside a pointwise kernel."""
    return copy_into_places(site) if len(site.op.refs()) > POINTWISE_CAT_INPUTS else None


def copy_into_places(site: Site) -> list[Op] | None:
    """Inductor's ConcatKernel: compute each input in its place in the result, or copy it there."""
    refs = site.op.refs()
    if len(refs) < 2:
        return None
    places = tuple(site.add("clone", site.graph.type_of(ref), self=ref) for ref in refs)
    return site.finish("concat_in_place", tensors=places)


def pool_to_one(site: Site) -> list[Op] | None:
    """adaptive_avg_pool2d(x, 1) = mean(x) over rows and columns."""
    shape = site.op.type.shape
    if math.prod(shape[2:]) != 1 or len(shape) != 4:
        return None
    return site.finish("mean.dim", self=site.op.arg("self"), dim=(-1, -2), keepdim=True)


def expand_weight_norm(site: Site) -> list[Op] | None:
    """weight_norm(v, g) = v * (g / sqrt(sum(v^2))), the sum over all dimensions but one (torch's `_weight_norm`)."""
    source, scale, dim = site.ref("v"), site.ref("g"), site.op.arg("dim", 0)
    if source is None or scale is None or not isinstance(dim, int):
        return None
    kind, row = site.op.type, site.op.types[1]
    others = tuple(axis for axis in range(len(kind.shape)) if axis != dim % len(kind.shape))
    squares = site.add("pow.Tensor_Scalar", kind, self=source, exponent=2.0)
    total = site.add("sum.dim_IntList", row, self=squares, dim=others, keepdim=True)
    length = site.add("sqrt", row, self=total)
    factor = site.add("div.Tensor", row, self=scale, other=length)
    return site.finish("mul.Tensor", self=source, other=factor)


REWRITES: Mapping[str, Rewrite] = {
    "_weight_norm_interface": expand_weight_norm,
    "convolution": peel_convolution_bias,
    "addmm": unfuse_addmm,
    "native_layer_norm": expand_layer_norm,
    "native_group_norm": expand_group_norm,
    "_fused_rms_norm": rms_norm_parts,
    "native_batch_norm": expand_batch_statistics,
    "_softmax": expand_softmax,
    "_safe_softmax": expand_softmax,
    "cat": copy_many_into_places,
    "_adaptive_avg_pool2d": pool_to_one,
}
ON_GPU_ONLY = frozenset({"convolution", "addmm"})
"""Rewrites for a GPU only: on a CPU the library call adds the bias (`convolution`, `should_prefer_unfused_addmm`)."""
CPU_REWRITES: Mapping[str, Rewrite] = {
    **{name: rewrite for name, rewrite in REWRITES.items() if name not in ON_GPU_ONLY},
    "cat": copy_into_places,
}
"""Rewrites for a CPU, where every concatenation is a ConcatKernel (Inductor's `cat`)."""
