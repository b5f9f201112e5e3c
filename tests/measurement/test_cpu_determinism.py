"""Settings of the C library and of torch, for a CPU only."""

from __future__ import annotations

import ctypes

import pytest
import torch

from costmodel.measurement.cpu_determinism import keep_memory, make_cpu_deterministic


class Library:
    """Stands for the C library, and notes what is set."""

    def __init__(self) -> None:
        self.set: list[tuple[int, int]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.set.append((parameter, value))
        return 1


def test_no_memory_is_mapped_apart_or_given_back(monkeypatch: pytest.MonkeyPatch):
    """Numbers of malloc.h: M_MMAP_MAX is -4, M_TRIM_THRESHOLD is -1, and a threshold of -1 stands for none."""
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    keep_memory()
    assert sorted(library.set) == [(-4, 0), (-1, -1)]


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, error: type[Exception]):
    def fail(name: str | None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", fail)
    keep_memory()


def test_only_a_cpu_is_set_up(monkeypatch: pytest.MonkeyPatch):
    library, flushed = Library(), []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(torch, "set_flush_denormal", flushed.append)
    make_cpu_deterministic("cuda")
    assert (library.set, flushed) == ([], [])
    make_cpu_deterministic("cpu")
    assert len(library.set) == 2
    assert flushed == [True]
