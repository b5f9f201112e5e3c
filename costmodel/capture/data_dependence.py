"""Data dependence of a forward pass: its place in the model's code, and largest sizes of results."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from traceback import FrameSummary
from types import FrameType
from typing import Any

import torch
from torch import nn

from costmodel.errors import text_of
from costmodel.zoo.source_files import is_installed

_NOT_THE_MODEL = (Path(__file__).parents[1], Path(torch.__file__).parent)
"""Directories of code that may lie on the stack between the model's line and an operator."""
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_INSTALLED = ("site-packages", "dist-packages")
_NO_DATA = re.compile(r"meta tensor|meta device type", re.IGNORECASE)
"""Messages of torch about reading the values of a meta tensor."""

NO_LINE = "?:0"
"""Line of code that is not the model's."""
_FRAME = re.compile(r'File "(.+)", line (\d+)')


def largest(func: Any, args: Sequence[Any]) -> torch.Tensor | None:
    """Largest possible result of a call whose result size depends on missing data; None for every other call.

    Args:
        func: an OpOverload.
        args: its positional arguments.
    """
    rule = _LARGEST.get(func._schema.name)
    tensors = [arg for arg in (*args[:1], *_indices(args)) if isinstance(arg, torch.Tensor)]
    return rule(*args) if rule and any(tensor.is_meta for tensor in tensors) else None


def lacks_data(error: BaseException) -> bool:
    """Whether torch raised an error because a meta tensor has no values."""
    return isinstance(error, (RuntimeError, TypeError)) and _NO_DATA.search(text_of(error)) is not None


def source_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """First line of the model's code on a stack, such as `torchvision/ops/boxes.py:51`.

    Args:
        frames: frames with their line numbers, the innermost first.
    """
    return _first_of_model((frame.f_code.co_filename, line) for frame, line in frames)


def line_of_error(error: BaseException) -> str:
    """Line of the user's code that an error comes from; without any, of a library's model, or else NO_LINE."""
    frames = list(reversed(list(traceback.walk_tb(error.__traceback__))))
    users = [(frame, line) for frame, line in frames if not is_installed(frame.f_code.co_filename)]
    line = source_line(users)
    return source_line(frames) if line == NO_LINE else line


def source_line_of(stack: Sequence[FrameSummary]) -> str:
    """First line of the model's code on a stack of Dynamo, the innermost frame last."""
    return _first_of_model((frame.filename, frame.lineno or 0) for frame in reversed(stack))


def source_line_in(trace: str) -> str:
    """First line of the model's code on a stack as text, the innermost frame last."""
    return _first_of_model((name, int(line)) for name, line in reversed(_FRAME.findall(trace)))


def _first_of_model(places: Iterable[tuple[str, int]]) -> str:
    for name, line in places:
        path = Path(name)
        standard = path.is_relative_to(_STANDARD_LIBRARY) and not any(part in path.parts for part in _INSTALLED)
        if not standard and not any(path.is_relative_to(place) for place in _NOT_THE_MODEL):
            return plain_name(f"{_short(path)}:{line}")
    return NO_LINE


def not_reached(paths: Mapping[nn.Module, str], called: Set[nn.Module]) -> tuple[str, ...]:
    """Outermost modules with parameters of which no submodule ran.

    Args:
        paths: path of every module, in the order of `named_modules()`.
        called: modules that ran.
    """
    missed: list[str] = []
    for module, path in paths.items():
        within = any(path.startswith(f"{outer}.") for outer in missed)
        if not within and called.isdisjoint(module.modules()) and next(module.parameters(), None) is not None:
            missed.append(path)
    return tuple(map(plain_name, missed))


def plain_name(text: str) -> str:
    """Replace characters that separate names in a graph's text form; modules and files may have any name."""
    return re.sub(r"[\s,]", "_", text)


def _short(path: Path) -> str:
    """Path of a file below the deepest directory on `sys.path`."""
    roots = [Path(entry) for entry in sys.path if entry and path.is_relative_to(entry)]
    return path.relative_to(max(roots, key=lambda root: len(root.parts))).as_posix() if roots else path.name


def _places(count: int, *columns: int) -> torch.Tensor:
    return torch.empty((count, *columns), dtype=torch.int64, device="meta")


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _indices(args: Sequence[Any]) -> Sequence[Any]:
    return args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()


def _nonzero(source: torch.Tensor) -> torch.Tensor:
    return _places(source.numel(), source.dim())


def _masked_select(source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(source.shape, mask.shape)
    return source.new_empty(shape.numel(), device="meta")


def _index(source: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Result of indexing by a mask of n elements as if it selected all n, one index a dimension."""
    if not any(map(_is_mask, indices)):
        return None
    places: list[torch.Tensor | None] = []
    for index in indices:
        masks = index is not None and _is_mask(index)
        places += [_places(index.numel())] * index.dim() if masks and index is not None else [index]
    result: torch.Tensor = torch.ops.aten.index.Tensor(source.to("meta"), places)
    return result


def _nms(boxes: torch.Tensor, *_: Any) -> torch.Tensor:
    return _places(boxes.shape[0])


_LARGEST: Mapping[str, Callable[..., torch.Tensor | None]] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::index": _index,
    "torchvision::nms": _nms,
}
"""Largest results of operators with data-dependent sizes: every element is selected, every box kept."""
