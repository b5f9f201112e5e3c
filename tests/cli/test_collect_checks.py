"""Checks of a collection's options on both sides of their bounds."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch

import costmodel.profiles.profile
from collectors.workloads.catalog import UNIT_WORKLOADS
from costmodel.cli.collect_checks import (
    check_cluster,
    check_device,
    check_form,
    check_launches,
    check_name,
    make_directory,
    parse_duration,
    set_threads,
)
from costmodel.errors import RequestError


def test_a_budget_is_of_up_to_thirty_days():
    assert parse_duration("720h") == 30 * 24 * 3600
    for text in ("720.1h", "0h", "0.0s"):
        with pytest.raises(RequestError, match="give a time up to 30 days"):
            parse_duration(text)
    assert parse_duration("0.1s") == 0.1


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "9", "x" * 64])
def test_names_of_letters_digits_and_marks_are_accepted(name: str):
    check_form(name)


@pytest.mark.parametrize("name", ["", "x" * 65, ".a", "-a", "_a", "a b", "a/b", "\u00e9", "a\n"])
def test_other_names_are_refused(name: str):
    with pytest.raises(RequestError, match=r"^impossible name .* for a profile; use letters"):
        check_form(name)


def with_devices(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_a_device_is_one_that_is_there(monkeypatch: pytest.MonkeyPatch):
    with_devices(monkeypatch, 2)
    assert [check_device(name) for name in (None, "cpu", "cuda", "cuda:0", "cuda:1")] == [
        *("cuda", "cpu", "cuda", "cuda:0", "cuda:1"),
    ]
    with pytest.raises(RequestError, match=r"^there is no cuda:2 here \(CUDA devices: 2\); --device cpu"):
        check_device("cuda:2")
    with_devices(monkeypatch, 0)
    assert check_device(None) == "cpu"
    with pytest.raises(RequestError, match=r"^there is no cuda here \(CUDA devices: 0\)"):
        check_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 9)  # as another build may report
    assert check_device(None) == "cpu"


def test_launches_are_measured_on_a_gpu():
    check_launches("cuda")
    with pytest.raises(RequestError, match="on a GPU only"):
        check_launches("cpu")


def test_threads_are_a_cpus_and_at_most_its_cores(monkeypatch: pytest.MonkeyPatch):
    taken: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    set_threads(None, "cuda")
    set_threads(4, "cpu")
    assert taken == [4]
    with pytest.raises(RequestError, match=r"^--threads 5 are more than the 4 cores of this machine$"):
        set_threads(5, "cpu")
    with pytest.raises(RequestError, match=r"^--threads is for --device cpu"):
        set_threads(1, "cuda")
    assert taken == [4]


def test_a_shipped_profile_is_not_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(costmodel.profiles.profile, "shipped_directory", lambda: tmp_path)
    assert check_name("mine", "cpu") == "mine"
    (tmp_path / "mine").mkdir()
    with pytest.raises(RequestError, match=r"^the profile mine is shipped and cannot be changed"):
        check_name("mine", "cpu")


def test_measurements_go_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(costmodel.profiles.profile, "user_directory", lambda: tmp_path / "home")
    assert make_directory("mine", None) == tmp_path / "home" / "mine"
    assert make_directory("mine", tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    assert make_directory("mine", tmp_path / "a" / "b") == tmp_path / "a" / "b"  # there already
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(RequestError, match=f"^cannot write to {tmp_path / 'a'}$"):
        make_directory("mine", tmp_path / "a")


ADDRESS = "tcp://10.0.0.1:8786"


@pytest.mark.parametrize(
    ("device", "hardware", "scheduler", "workers"),
    [
        (None, None, None, None),
        ("cuda:3", None, None, None),
        (None, None, "local", None),
        ("cpu", None, "local", 4),
        ("cuda", "mine", ADDRESS, None),
    ],
)
def test_clusters_that_can_measure(
    device: str | None, hardware: str | None, scheduler: str | None, workers: int | None
):
    check_cluster(UNIT_WORKLOADS, device, hardware, scheduler, workers)


@pytest.mark.parametrize(
    ("names", "device", "hardware", "scheduler", "workers", "said"),
    [
        (UNIT_WORKLOADS, None, "mine", ADDRESS, 2, "--workers goes with --scheduler local"),
        (UNIT_WORKLOADS, None, None, None, 2, "--workers goes with --scheduler local"),
        (("conv", "models"), None, None, "local", None, "models is measured on one machine by itself"),
        (("host",), None, None, "local", None, "host is measured on one machine by itself"),
        (UNIT_WORKLOADS, "cuda:1", None, "local", None, "with --scheduler the device is cpu or cuda, not 'cuda:1'"),
        (UNIT_WORKLOADS, "cuda", None, ADDRESS, None, "the device is on other machines: name the profile"),
    ],
)
def test_what_no_cluster_can_do_is_refused(
    names: tuple[str, ...],
    device: str | None,
    hardware: str | None,
    scheduler: str | None,
    workers: int | None,
    said: str,
):
    with pytest.raises(RequestError, match=f"^{said}"):
        check_cluster(names, device, hardware, scheduler, workers)


def test_a_cluster_needs_dask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_cluster(UNIT_WORKLOADS, None, None, None, None)
    with pytest.raises(RequestError, match=r"^--scheduler needs Dask; pip install"):
        check_cluster(UNIT_WORKLOADS, None, None, "local", None)
