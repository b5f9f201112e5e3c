"""Parallel processes: jobs that die or hang, descriptions of exits, devices."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import costmodel
from collectors.processes import process_pool
from collectors.processes.process import describe_exit, pinned
from collectors.processes.process_pool import in_parallel
from costmodel.errors import MeasurementError, RequestError

ROOT = Path(costmodel.__file__).parent.parent
HERE = {"device": "test"}


def give_up_on(number: int) -> int:
    """A job that kills its process, hangs, raises, or doubles its number."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        time.sleep(3600)
    if number == 3:
        raise ValueError("three")
    return 2 * number


class TestPool:
    """A job that dies or hangs ends no other job."""

    @pytest.mark.slow
    def test_jobs_that_die_or_hang_are_given_up_and_the_rest_is_done(self):
        end = time.monotonic() + 100
        outcomes = dict(in_parallel(give_up_on, range(8), 3, end, {}, hang_seconds=5.0))
        assert {number: outcomes[number] for number in (0, 4, 5, 6, 7)} == {0: 0, 4: 8, 5: 10, 6: 12, 7: 14}
        assert isinstance(outcomes[1], MeasurementError)
        assert isinstance(outcomes[2], MeasurementError)
        assert isinstance(outcomes[3], ValueError)

    def test_nothing_is_begun_after_the_end(self):
        assert list(in_parallel(give_up_on, [0], 1, time.monotonic() - 1, {})) == []

    def test_a_core_or_two_are_left_to_the_system(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
        assert process_pool.default_processes() == 14
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
        assert process_pool.default_processes() == 1


class TestProcess:
    def test_ends_are_named(self):
        assert describe_exit(-11) == "killed by SIGSEGV"
        assert describe_exit(-200) == "killed by signal 200"
        assert describe_exit(3) == "exit status 3"

    def test_a_worker_sees_one_device(self, monkeypatch: pytest.MonkeyPatch):
        import torch  # not above: processes of the tests before import this module

        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert pinned("cpu") == ({"OMP_NUM_THREADS": str(torch.get_num_threads())}, "cpu")
        assert pinned("cuda") == ({}, "cuda")
        assert pinned("cuda:3") == ({"CUDA_VISIBLE_DEVICES": "3"}, "cuda")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-abc")
        assert pinned("cuda:1") == ({"CUDA_VISIBLE_DEVICES": "GPU-abc"}, "cuda")
        with pytest.raises(RequestError, match="there is no cuda:2"):
            pinned("cuda:2")

    @pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is the GNU C library's")
    def test_memory_that_is_freed_is_kept(self):
        """Page faults of the tenth time that 256 MiB are filled and freed, in processes of their own."""
        fill = (
            "import resource, sys, numpy\n"
            "from costmodel.measurement.cpu_determinism import keep_memory\n"
            "if sys.argv[1] == 'keep': keep_memory()\n"
            "for _ in range(10):\n"
            "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
            "    blocks = [numpy.ones(8 << 20) for _ in range(4)]\n"
            "    del blocks\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
        )
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "NUMPY_MADVISE_HUGEPAGE": "0"}
        faults = [
            int(subprocess.check_output([sys.executable, "-c", fill, way], text=True, env=variables))
            for way in ("keep", "not")
        ]
        assert faults[0] < 100 < faults[1]

    @pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", "CPU"])
    def test_other_devices_are_refused(self, device: str):
        with pytest.raises(RequestError, match="choose cpu, cuda or cuda:N"):
            pinned(device)
