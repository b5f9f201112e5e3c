"""Two sets of predictions -> what changed between them, with intervals of the changes."""

from __future__ import annotations
