"""Files of Python code: installed, or the user's."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch

INSTALLED = (str(Path(torch.__file__).parents[1]), sysconfig.get_paths()["stdlib"], "<frozen")
"""Beginnings of the names of files in installed packages and in Python's library."""


def is_installed(file: str) -> bool:
    """Whether a file of code is not the user's own."""
    return file.startswith(INSTALLED)
