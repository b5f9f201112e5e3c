"""`costmodel hardware [NAME]`: the available profiles, or the summary of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.completion import complete_hardware
from costmodel.cli.output import opened, render_result
from costmodel.report.document import Column, Document, Records, Section

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="Profile to summarise; default: list all profiles.", autocompletion=complete_hardware
    ),
]


def hardware(
    name: Name = None,
    format: options.FormatOption = None,  # noqa: A002 - the name of the option
    output: options.Output = None,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """List the hardware profiles, or summarise one: device, measurements, accuracy. JSON holds all of it."""
    from costmodel.profiles.profile import list_profiles, load_profile, resolve_default
    from costmodel.profiles.summary import summary_document

    with opened(output) as write:
        if name is None:
            document = _list_document(list_profiles(), *resolve_default())
        else:
            document = summary_document(name, load_profile(name).card)
        write(render_result(document, format, output))


def _list_document(names: Sequence[str], default: str, reason: str) -> Document:
    """The document of a list of profiles."""
    rows = [(name, f"default: {reason}" if name == default else "") for name in names]
    values = {"profiles": list(names), "default": default, "reason": reason}
    records = Records(("profile", "default"), [{"profile": name, "default": name == default} for name in names])
    sections = [Section("", (Column("profile", keeps_width=True), Column("")), rows)]
    return Document("hardware", "hardware profiles", sections, values, records)
