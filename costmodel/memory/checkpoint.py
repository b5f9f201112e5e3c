"""Apply a checkpointing plan to a module by `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from costmodel import checks
from costmodel.capture.inputs import module_fault
from costmodel.capture.shared_module import Specialized, is_transformed, shared_copy, specialize
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CheckpointPlanError
from costmodel.ir import operators
from costmodel.ir.op_table import Role
from costmodel.memory.checkpoint_plan import CheckpointPlan

_SAVED = {row.name for row in operators.TABLE.values() if row.role is Role.EXTERN}
_SAVED |= {f"_scaled_dot_product_{way}_attention" for way in ("flash", "efficient", "cudnn", "fused")}
_SAVED |= {"_scaled_dot_product_flash_attention_for_cpu"}
"""Compute-heavy operators by ATen name; their results are saved, others are recomputed."""


@takes_turns
@checked(
    CheckpointPlanError,
    module=module_fault,
    plan=checks.instance_of(CheckpointPlan, "a CheckpointPlan, as CheckpointPlan.load reads it"),
)
def checkpointed(module: nn.Module, plan: CheckpointPlan) -> nn.Module:
    """Return a module that recomputes the activations of the plan's modules in the backward pass.

    It shares parameters and buffers with the original, which is not changed, so a cast or a move of either affects
    both. Outputs, gradients, running statistics and the random state are those of the original. Inside the plan's
    modules, activation functions do not write in place.

    Args:
        module: of the same structure as the one that the plan was made for.
        plan: from `costmodel memory MODEL --save-plan FILE` and `CheckpointPlan.load`.

    Raises:
        CheckpointPlanError: the module lacks a submodule of the plan.
        PlanError: the module cannot be copied.
    """
    known = dict(module.named_modules())
    missing = [name for name in plan.modules if name not in known]
    if missing:
        raise CheckpointPlanError(
            f"{type(module).__name__} has no module {missing[0]}; the plan was made for {plan.model}"
        )
    twin = shared_copy(module)
    for name in plan.modules:
        _checkpoint(twin.get_submodule(name))
    return twin


def _checkpoint(module: nn.Module) -> None:
    """Make a module run its forward pass through `torch.utils.checkpoint`."""
    for child in module.modules():
        if getattr(child, "inplace", False) is True:
            child.inplace = False  # type: ignore[assignment]  # saved results must not be overwritten
    if not isinstance(module, Checkpointed):  # one module may have two names
        specialize(module, Checkpointed)  # a wrapper module would change the names in state_dict


class Checkpointed(Specialized):
    """Mixin of a module that recomputes its activations in the backward pass."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original's forward pass, checkpointed if gradients are enabled."""
        if not torch.is_grad_enabled() or is_transformed((*args, *kwargs.values())):
            return self._eager_forward(*args, **kwargs)
        # copies of lists: a caller may append to its list of features before the backward pass reads it
        args, kwargs = tree_map(lambda leaf: leaf, (args, kwargs))
        return checkpoint(
            self._eager_forward, *args, use_reentrant=False, context_fn=partial(_contexts, self), **kwargs
        )


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts of the forward pass and of its recomputation.

    Recurrent modules save no result: on a CPU their cells overwrite the results of matmuls.
    """
    if any(isinstance(child, (nn.RNNBase, nn.RNNCellBase)) for child in module.modules()):
        return nullcontext(), _recomputation(module, nullcontext())
    first, again = create_selective_checkpoint_contexts(_policy)
    return first, _recomputation(module, again)


def _policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    kept = op._schema.name.partition("::")[2] in _SAVED
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


@contextmanager
def _recomputation(module: nn.Module, context: AbstractContextManager[Any]) -> Iterator[None]:
    """Replace buffers by copies, so that recomputation does not update running statistics again."""
    owners = [child for child in module.modules() if child._buffers]
    originals = [(child, dict(child._buffers)) for child in owners]
    for child, buffers in originals:
        child._buffers.update({name: None if kept is None else kept.clone() for name, kept in buffers.items()})
    try:
        with context:
            yield
    finally:
        for child, buffers in originals:
            child._buffers.update(buffers)
