"""What torch.compile checks of a model's modules at every call: host time that parameters and kernels do not explain.

Dynamo guards every submodule. A subtree in which no dictionary has changed since the last call is passed over as one
(`torch._dynamo.config.use_recursive_dict_tags_for_guards`). But a container that was iterated, as `nn.Sequential`
iterates itself, is guarded by more than its dictionary: neither it nor what holds it can be passed over.
"""

from __future__ import annotations

from torch import nn

ITERATED = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def checked_modules(root: nn.Module) -> int:
    """How many modules a compiled call checks one by one: containers that are not empty, and all that hold one."""
    paths = {path for path, module in root.named_modules() if isinstance(module, ITERATED) and len(module)}
    holders = {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."}
    return len(paths | holders | {""}) if paths else 0
