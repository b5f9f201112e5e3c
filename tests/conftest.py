"""Settings and fixtures of all tests: threads, hypothesis, GPU tests, golden files, captured models and profiles."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import torch

if TYPE_CHECKING:
    from costmodel.ir import Graph
    from costmodel.profiles.profile import Profile

# One thread in each process. Tensors in tests are small: threads that wait for each other cost more than they compute,
# most of all beside other work. OpenMP and MKL read the variable as torch is imported, in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# CI tries the same examples in every run, so that a failure is that of the change. No example has a deadline anywhere:
# how long one takes depends on what else the machine does.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

GOLDEN = Path(__file__).parent / "golden"


SLOW = Path(__file__).parent / "slow.txt"
"""Tests that took over SLOW_S seconds of CPU time, a line each; they are marked slow, as those are that say so."""
SLOW_S = 0.2
_cpu_seconds: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing")
    parser.addoption("--update-slow", action="store_true", help="write tests/slow.txt anew, for the tests that run")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Take the CPU time of a test, its processes included: it hardly depends on what else the machine does."""
    begin = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_s", sum(os.times()[:4]) - begin))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _cpu_seconds[report.nodeid] = dict(report.user_properties)["cpu_s"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")  # of pytest-xdist, whose controller gets all reports
    if session.config.getoption("--update-slow") and not is_worker:
        others = {
            name for name in slow_tests() if name not in _cpu_seconds and (SLOW.parents[1] / file_of(name)).exists()
        }
        slow = others | {name for name, seconds in _cpu_seconds.items() if seconds > SLOW_S}
        SLOW.write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")


def slow_tests() -> set[str]:
    return set(SLOW.read_text(encoding="utf-8").splitlines())


def file_of(test: str) -> str:
    return test.partition("::")[0]


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = slow_tests()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and a CUDA build of torch"))


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Processes started within it heed an interrupt, also where the tests run as a background job that ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of a name (.txt if it has no ending); a missing file fails.

    With --update-golden the file is written.
    """

    def check(name: str, text: str) -> None:
        path = GOLDEN / (name if "." in name else f"{name}.txt")
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        if not path.exists():
            pytest.fail(f"{path} is missing; look at what --update-golden writes, and commit it")
        assert text + "\n" == path.read_text(), f"{path} differs; --update-golden if that is meant"

    return check


@pytest.fixture(scope="session")
def graph_of() -> Callable[..., Graph]:
    """The captured graph of a model spec at a batch size, each made once."""
    from costmodel import zoo
    from costmodel.capture.trace import capture

    @functools.cache
    def make(spec: str, batch_size: int = 1) -> Graph:
        loaded = zoo.load(spec, batch_size=batch_size)
        return capture(loaded.module, loaded.inputs, spec)

    return make


@pytest.fixture(scope="session")
def h200() -> Profile:
    """The shipped profile of the H200, read once."""
    from costmodel.profiles.profile import load_profile

    return load_profile("nvidia-h200")


@pytest.fixture(autouse=True)
def _subnormal_numbers() -> None:
    """Let subnormal numbers be: code that Inductor compiled with -ffast-math flushes them to zero once it is loaded."""
    torch.set_flush_denormal(False)
