"""`costmodel hardware [NAME]`: the profiles there are; one profile's card."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.output import opened
from costmodel.report.escape import terminal


class CardFormat(StrEnum):
    """Forms of a list of profiles or of a card."""

    TABLE = "table"
    JSON = "json"


Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Profile whose card to show; default: list them.")]
CardFormatOption = Annotated[CardFormat, typer.Option("--format", help="Form of the result.")]


def hardware(
    name: Name = None,
    format: CardFormatOption = CardFormat.TABLE,  # noqa: A002 - the name of the option
    output: options.Output = None,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """List the hardware profiles, or show the card of one: what was measured, on what, with what result."""
    from costmodel.profiles.profile import list_profiles, load_profile, resolve_default

    with opened(output) as write:
        if name is not None:
            card = dict(load_profile(name).card)
            write(_json(card) if format is CardFormat.JSON else "\n".join(_lines(card)) + "\n")
            return
        default, reason = resolve_default()
        names = list_profiles()
        if format is CardFormat.JSON:
            write(_json({"profiles": list(names), "default": default, "reason": reason}))
            return
        write("".join(f"{terminal(item)}{f'  (default: {reason})' if item == default else ''}\n" for item in names))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def _lines(value: object, indent: str = "") -> list[str]:
    """JSON-like data as indented `key: value` lines."""
    if isinstance(value, dict):
        items = [(terminal(str(key)), item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [("-", item) for item in value]
    else:
        return [f"{indent}{terminal(str(value))}"]
    lines: list[str] = []
    for key, item in items:
        mark = key if key == "-" else f"{key}:"
        if isinstance(item, dict | list) and item:
            lines += [f"{indent}{mark}", *_lines(item, indent + "  ")]
        else:
            lines.append(f"{indent}{mark} {'none' if item in ({}, [], None) else terminal(str(item))}")
    return lines
