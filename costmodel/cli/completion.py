"""Names that a shell completes: models, hardware profiles, modes. torch is not imported: sources are searched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of torch.compile."""

_TORCHVISION = re.compile(
    r'^@register_model\((?:name="(\w+)")?\)\n'  # the name, if it is not the function's
    r"(?:@.*\n(?: .*\n|\)\n)*)*"  # further decorators, with their arguments
    r"def (\w+)",
    re.MULTILINE,
)
_TIMM = re.compile(r"^@register_model\n(?:@.*\n)*def (\w+)", re.MULTILINE)
_TRANSFORMERS = re.compile(
    r"^MODEL_(?:FOR_(?:\w*(?:IMAGE|VIDEO)_CLASSIFICATION|\w*OBJECT_DETECTION|\w+_SEGMENTATION|DEPTH_ESTIMATION|"
    r"MASKED_IMAGE_MODELING|MASK_GENERATION|KEYPOINT_DETECTION|BACKBONE)_)?"  # the tasks of vision, or any model
    r"MAPPING_NAMES = OrderedDict\(\s*\[(.*?)^    \]",
    re.MULTILINE | re.DOTALL,
)
_TRANSFORMERS_TYPE = re.compile(r'^ +\(\s*"([a-z][\w.-]*)",', re.MULTILINE)


def complete_models(incomplete: str) -> list[str]:
    """Names of models that begin with the given text: of torchvision, or after `timm:` and `hf:` of these libraries.

    A name is offered after a prefix only, so that the first list is short; files are left to the shell.
    """
    source, colon, _ = incomplete.partition(":")
    if not colon:
        source = _source_before_colon()
    names = _names(source)
    if colon:
        return sorted(f"{source}:{name}" for name in names)
    return sorted(names) if source else sorted([*names, "timm:", "hf:"])


def complete_hardware(incomplete: str) -> list[str]:  # noqa: ARG001 - typer filters by it
    """Names of the hardware profiles."""
    from costmodel.profiles.profile import list_profiles

    return list(list_profiles())


def complete_modes(incomplete: str) -> list[str]:  # noqa: ARG001 - typer filters by it
    """Modes of torch.compile."""
    return list(MODES)


def _source_before_colon() -> str:
    """Library named before the word that bash completes: bash ends a word at a colon."""
    words = os.environ.get("COMP_WORDS", "").split()
    before = words[:-1] if os.environ.get("_COSTMODEL_COMPLETE") == "complete_bash" else []
    return before[-2] if before[-1:] == [":"] and len(before) > 1 else ""


def _names(source: str) -> set[str]:
    """Names of a library's models; of torchvision for an empty name."""
    match source:
        case "":
            found = _found("torchvision", "models", _TORCHVISION)
            return {match[1] or match[2] for match in found}
        case "timm":
            return {match[1] for match in _found("timm", "models", _TIMM)}
        case "hf":
            lists = (match[1] for match in _found("transformers", "models/auto", _TRANSFORMERS))
            # the longest list is that of models for no task, of which the parts of larger models see images
            any_model, *tasks = sorted(map(_TRANSFORMERS_TYPE.findall, lists), key=len, reverse=True) or [[]]
            return {name for names in tasks for name in names} | {
                name for name in any_model if name.endswith("_vision_model")
            }
    return set()


def _found(package: str, directory: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Matches in the sources of an installed package, which is not imported; none if it is not installed."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted((Path(place) / directory).rglob("*.py")):
            with suppress(OSError, UnicodeError):
                yield from pattern.finditer(path.read_text(encoding="utf-8"))
