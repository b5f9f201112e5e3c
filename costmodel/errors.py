"""Every exception that costmodel raises on purpose; one root, so that callers can catch it."""

from __future__ import annotations


class CostmodelError(Exception):
    """Root of the tree. Its message is one line: what was wrong, and what would be right."""


class RequestError(CostmodelError):
    """The request cannot be served as it was made (unknown model, bad option, bad size)."""


class UnknownModelError(RequestError):
    """No model goes by that name; the message suggests near ones."""


class UnknownHardwareError(RequestError):
    """No profile goes by that name; the message lists those there are."""


class CaptureError(CostmodelError):
    """A module could not be turned into a graph."""


class DataDependentError(CaptureError):
    """The forward pass goes by the values of a tensor, which a capture does not have."""


class GraphError(CostmodelError):
    """A graph breaks an invariant of the IR, or its text cannot be parsed."""


class ProfileError(CostmodelError):
    """A hardware profile or one of its files is damaged, foreign or of another version."""


class PlanError(CostmodelError):
    """A plan is damaged, of another version, or was made for another model, shape or machine."""


class DatasetError(CostmodelError):
    """A table of measurements is missing, damaged, or too small for what was asked."""


class MeasurementError(CostmodelError):
    """Something could not be measured on this machine."""


class CheckpointPlanError(PlanError):
    """A checkpointing plan cannot be read or written, or does not fit the model."""


def first_line(text: str) -> str:
    """The first line of what an error says; nothing where it says nothing."""
    return next(iter(text.strip().splitlines()), "")


MOST_CHARACTERS = 2_000
"""Length to which others' messages are cut."""


def text_of(error: BaseException) -> str:
    """The message of an exception that others' code may have defined: cut, and one of ours where it cannot be had."""
    try:
        text = str.__str__(str(error))  # a subclass of str may do anything
    except BaseException:  # noqa: BLE001 - `__str__` may raise anything, too
        return "(its message cannot be shown)"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


def own_words(error: BaseException) -> str:
    """An exception's type and message, on one line."""
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
