"""Hosts: what they scale, how they are kept, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from costmodel.errors import ProfileError, RequestError
from costmodel.profiles import hosts
from costmodel.profiles.hosts import Host, describe_host, list_hosts, resolve_host, save_host, speed_of
from costmodel.profiles.profile import Profile, load_profile

CARD = {"host": {"probe_us": 5.0}, "environment": {"host_cpu": "a CPU", "cores": "16"}}


@pytest.fixture
def profile(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "user_directory", lambda: tmp_path / "trained_models")
    shipped = load_profile("nvidia-h200")
    return replace(shipped, card={**shipped.card, **CARD})


def test_the_profiles_own_host_is_the_default(profile):
    assert resolve_host(None, profile) == Host("a CPU, 16 cores", 1.0)


def test_of_several_machines_it_is_the_middle_one(profile):
    several = replace(profile, card=profile.card | {"host": {"probe_us": 6.3, "machines_us": [5.2, 6.3, 6.9]}})
    assert resolve_host(None, several) == Host("the median of 3 machines", 1.0)
    with_range = {**several.card["host"], "range_us": [4.0, 10.0]}
    newer = replace(several, card={**several.card, "host": with_range})
    assert resolve_host(None, newer) == Host("the least disturbed of 3 machines", 1.0)


def test_what_is_assumed_of_the_host_is_said_in_one_line(profile: Profile):
    host = {"probe_us": 5.0, "range_us": [4.0, 10.0]}
    line = describe_host(replace(profile, card={**profile.card, "host": host}))
    assert line.startswith("an undisturbed dedicated machine, 5.0 us a launch; ")
    assert line.endswith("hosts that take 0.80 to 2.00 times as long")
    assert describe_host(profile) == ""


def test_a_slower_host_is_kept_under_its_name(profile):
    save_host("lab", 6.25)
    save_host("desk", 2.5)
    save_host("lab", 10.0)
    assert list_hosts() == {"lab": 10.0, "desk": 2.5}
    assert resolve_host("lab", profile) == Host("lab", 0.5)  # twice as long a launch
    assert resolve_host("desk", profile) == Host("desk", 2.0)
    assert resolve_host("0.8", profile) == Host("0.8", 0.8)


def test_a_cpu_is_its_own_host(profile):
    cpu = replace(profile, card=profile.card | {"environment": {"device": "cpu", "host_cpu": "a CPU", "cores": "16"}})
    assert resolve_host(None, cpu) == Host("a CPU, 16 cores", 1.0)
    with pytest.raises(RequestError, match="is a CPU, which has no separate host; leave --host out"):
        resolve_host("0.8", cpu)


def test_host_costs_grow_as_the_host_slows_and_others_do_not(profile):
    slow = replace(profile, host_speed=0.5)
    for name in ("eager_host", "default_host", "graph_host", "compile"):
        assert slow.costs(name) == {cost: 2 * us for cost, us in profile.costs(name).items()}
    for name in ("eager_device", "eager_wall"):
        assert slow.costs(name) == profile.costs(name)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nowhere", "no host is called 'nowhere'; there are: none; .*collect host"),
        ("0", "impossible host speed 0; 1 is the profile's host"),
        ("-1", "impossible host speed -1"),
        ("1e9", "impossible host speed 1e9"),
        ("1.2.3", "impossible host speed 1.2.3"),
    ],
)
def test_what_is_no_host(profile, wanted: str, said: str):
    with pytest.raises(RequestError, match=said):
        resolve_host(wanted, profile)


@pytest.mark.parametrize("name", ["", "0.8", "a/b", "../x", "-x", "x" * 65])
def test_what_no_host_can_be_called(profile, name: str):
    with pytest.raises(RequestError, match="impossible name"):
        save_host(name, 5.0)
    assert not hosts.hosts_file().exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "hosts": {}}',
        '{"schema": 1, "hosts": {"a": {"probe_us": -1}}}',
        '{"hosts": [1]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_of_hosts_is_named_and_kept(profile, text: str):
    path = hosts.hosts_file()
    path.write_text(text)
    for act in (list_hosts, lambda: save_host("lab", 5.0)):
        with pytest.raises(ProfileError, match=f"{path.name}: not a file of hosts"):
            act()
    assert path.read_text() == text


def test_a_card_that_does_not_tell_its_hosts_speed(profile):
    without = replace(profile, card={key: value for key, value in profile.card.items() if key != "host"})
    with pytest.raises(ProfileError, match="it has no host probe; train the profile again"):
        speed_of(5.0, without)


@pytest.mark.parametrize("probe_us", [1e-308, 1e300])
def test_a_host_of_an_impossible_speed_is_refused(profile, probe_us: float):
    save_host("lab", probe_us)
    with pytest.raises(ProfileError, match=r"impossible host probe of .* us; remove the file and collect it again"):
        resolve_host("lab", profile)


def test_a_card_whose_host_is_none(profile):
    with pytest.raises(ProfileError, match="host: expected object, got array; train the profile again"):
        speed_of(5.0, replace(profile, card={**profile.card, "host": [1]}))


def test_the_file_of_hosts_says_its_schema(profile):
    save_host("lab", 6.25)
    assert json.loads(hosts.hosts_file().read_text()) == {"schema": 1, "hosts": {"lab": {"probe_us": 6.25}}}
