"""Which submodule of a module is running."""

from __future__ import annotations

from torch import nn


class ModuleStack:
    """The submodules that have been entered and not left.

    Attributes:
        paths: of the submodules, as `named_modules()` gives them.
    """

    def __init__(self, root: nn.Module) -> None:
        self.paths = {child: path for path, child in root.named_modules()}
        self._running: list[tuple[str, nn.Module]] = [("", root)]

    @property
    def path(self) -> str:
        """Of the module that is running; of a module that is no submodule, that of the one which called it."""
        return self._running[-1][0]

    @property
    def module(self) -> nn.Module:
        """The module that is running."""
        return self._running[-1][1]

    @property
    def root(self) -> nn.Module:
        """The module that all began with."""
        return self._running[0][1]

    def enter(self, child: nn.Module) -> None:
        """A submodule starts to run."""
        self._running.append((self.paths.get(child, self.path), child))

    def leave(self, child: nn.Module) -> None:
        """A submodule has returned, and so have those that it called, be it by an exception that it caught."""
        while self._running.pop()[1] is not child:
            pass
