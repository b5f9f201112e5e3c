"""Stack of the running submodules of a module."""

from __future__ import annotations

from torch import nn


class ModuleStack:
    """Stack of submodules that have started and not returned.

    Attributes:
        paths: path of each submodule, from `named_modules()`.
    """

    def __init__(self, root: nn.Module) -> None:
        self.paths = {child: path for path, child in root.named_modules()}
        self._running: list[tuple[str, nn.Module]] = [("", root)]

    @property
    def path(self) -> str:
        """Path of the running module; for a module that is no submodule, the path of its caller."""
        return self._running[-1][0]

    @property
    def module(self) -> nn.Module:
        """The running module."""
        return self._running[-1][1]

    @property
    def root(self) -> nn.Module:
        """The outermost module."""
        return self._running[0][1]

    def enter(self, child: nn.Module) -> None:
        """Push a submodule that starts to run."""
        self._running.append((self.paths.get(child, self.path), child))

    def leave(self, child: nn.Module) -> None:
        """Pop a submodule that has returned, and submodules below it, which may have ended by a caught exception."""
        while self._running.pop()[1] is not child:
            pass
