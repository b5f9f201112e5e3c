"""Output of a model's code during capture: what it prints, logs and warns of, in this thread only."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast


class _ByThread(io.RawIOBase):
    """Bytes that one thread writes go to one stream or nowhere, those of other threads to another."""

    def __init__(self, here: TextIO | None, elsewhere: TextIO | None) -> None:
        super().__init__()
        self._here, self._elsewhere = here, elsewhere
        self._thread = threading.get_ident()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        target = self._here if threading.get_ident() == self._thread else self._elsewhere
        if target is not None:
            target.write(bytes(data).decode("utf-8", "replace"))
            target.flush()
        return len(data)


def _by_thread(here: TextIO | None, elsewhere: TextIO | None) -> TextIO:
    """Text stream for what this thread and others write; of the class of standard output, which Dynamo breaks at."""
    return io.TextIOWrapper(cast("Any", _ByThread(here, elsewhere)), "utf-8", "replace", write_through=True)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what this thread prints to standard error: standard output is for results."""
    with contextlib.redirect_stdout(_by_thread(sys.stderr, sys.stdout)):
        yield


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Drop what this thread prints, logs and warns of: the model's code has run before, and has said it then."""
    out, err = _by_thread(None, sys.stdout), _by_thread(None, sys.stderr)
    quiet = warnings.catch_warnings(action="ignore")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _OtherThreads().on_all_handlers(), quiet:
        yield


class _OtherThreads(logging.Filter):
    """Filter of a log handler that lets records of other threads pass."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread

    @contextlib.contextmanager
    def on_all_handlers(self) -> Iterator[None]:
        """Context in which every handler of a logger, and the one of last resort, has this filter."""
        loggers = [logging.root, *logging.root.manager.loggerDict.values()]
        handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
        handlers += [logging.lastResort] if logging.lastResort else []
        for handler in handlers:
            handler.addFilter(self)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(self)
