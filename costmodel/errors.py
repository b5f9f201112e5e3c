"""Exceptions that costmodel raises on purpose, with one root."""

from __future__ import annotations


class CostmodelError(Exception):
    """Root of all errors; the message is one line: what is wrong, and what would be right."""


class RequestError(CostmodelError):
    """Invalid request: unknown model, bad option, bad size."""


class UnknownModelError(RequestError):
    """No model has that name; the message suggests similar ones."""


class UnknownHardwareError(RequestError):
    """No profile has that name; the message lists the existing ones."""


class CaptureError(CostmodelError):
    """A module cannot be captured."""


class DataDependentError(CaptureError):
    """The forward pass has data-dependent control flow, and a capture has no values of tensors."""


class GraphError(CostmodelError):
    """A graph violates an invariant of the IR, or its text cannot be parsed."""


class ProfileError(CostmodelError):
    """A hardware profile, or one of its files, is damaged or of another version."""


class PlanError(CostmodelError):
    """A plan is damaged or of another version, or does not fit the model, shape or machine."""


class DatasetError(CostmodelError):
    """A dataset is missing, damaged or too small."""


class MeasurementError(CostmodelError):
    """A measurement failed on this machine."""


class MissingPackageError(CostmodelError):
    """An optional package is not installed; the message says how to install it."""


class CheckpointPlanError(PlanError):
    """A checkpointing plan cannot be read or written, or does not fit the model."""


def first_line(text: str) -> str:
    """First line of a message; empty for an empty one."""
    return next(iter(text.strip().splitlines()), "")


MOST_CHARACTERS = 2_000
"""Length to which messages of foreign exceptions are cut."""


def text_of(error: BaseException) -> str:
    """Message of a foreign exception, cut to MOST_CHARACTERS; a substitute where `__str__` fails."""
    try:
        text = str.__str__(str(error))  # a subclass of str may override anything
    except BaseException:  # noqa: BLE001 - `__str__` may raise anything, too
        return "(its message cannot be shown)"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


def own_words(error: BaseException) -> str:
    """Type and message of an exception on one line."""
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
