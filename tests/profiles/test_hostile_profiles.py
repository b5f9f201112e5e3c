"""Profile summaries and hosts with hostile values: refused in one line, or every predicted time is possible."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from collectors.workloads.convolution_space import ConvUnit, unit_graph
from costmodel.errors import ProfileError
from costmodel.prediction.predict_graph import predict_graph
from costmodel.predictor.predictor import Predictor
from costmodel.profiles import hosts
from costmodel.profiles.profile import WHOLE_MODELS, load_profile, shipped_directory
from costmodel.report.types import Report
from tests.support.hostile_json import HOSTILE, SETTINGS, leaves, mutated, refused_or, text_with
from tests.support.predictors import small_predictor

GRAPH = replace(unit_graph(ConvUnit(8, 16, 16, 14), "nchw", "nchw"), name="net")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's directory of profiles, with `mine`, a copy of the shipped one but for its predictor."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(home))
        mine = home / "costmodel" / "trained_models" / "mine"
        mine.mkdir(parents=True)
        for name in ("card.json", WHOLE_MODELS):
            shutil.copy(shipped_directory() / "nvidia-h200" / name, mine)
        yield mine


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return small_predictor()


SHIPPED = json.loads((shipped_directory() / "nvidia-h200" / "card.json").read_text())
CARD = {key: SHIPPED[key] for key in SHIPPED if key not in ("scores", "sessions", "training")}


def possible(report: Report) -> None:
    """Holds every time of a report to be finite and positive, and its parts not to be negative."""
    for mode in report.modes.values():
        assert 0 < mode.low_ms <= mode.latency_ms <= mode.high_ms < math.inf
        assert 0 <= mode.host_ms < math.inf
        assert 0 <= mode.device_ms < math.inf
        assert mode.speedup is None or 0 < mode.speedup_low <= mode.speedup <= mode.speedup_high < math.inf
        assert mode.compile_s is None or 0 < mode.compile_s_low <= mode.compile_s <= mode.compile_s_high < math.inf


def predicted(users: Path, predictor: Predictor, text: str) -> Report:
    (users / "card.json").write_text(text)
    return predict_graph(GRAPH, load_profile("mine").using(predictor))


def test_the_card_that_is_mutated_predicts(users: Path, predictor: Predictor):
    report = predicted(users, predictor, json.dumps(CARD))
    assert list(report.modes) == ["eager", "default", "reduce-overhead"]
    possible(report)


@SETTINGS
@given(text=mutated(CARD))
def test_a_card_with_a_hostile_value_is_refused_or_predicts_possible_times(
    users: Path, predictor: Predictor, text: str
):
    report = refused_or(lambda: predicted(users, predictor, text), ProfileError)
    if report is not None:
        possible(report)


@pytest.mark.parametrize("table", ["eager_host", "default_host", "graph_host"])
@pytest.mark.parametrize("cost", [-1e5, -1e8])
def test_costs_that_may_be_and_whose_sum_may_not_be_are_refused(
    users: Path, predictor: Predictor, table: str, cost: float
):
    costs = CARD["costs"] | {table: CARD["costs"][table] | {"start": cost}}
    with pytest.raises(
        ProfileError, match=r"mine/card\.json: its costs give .* a host time of -.* and a device time of .* us; train"
    ):
        predicted(users, predictor, json.dumps(CARD | {"costs": costs}))


@pytest.mark.parametrize("nested", [6, 900, 100_000])
def test_what_a_card_only_shows_is_not_nested_deeply_either(users: Path, nested: int):
    (users / "card.json").write_text(json.dumps(CARD)[:-1] + f', "more": {"[" * nested}{"]" * nested}}}')
    with pytest.raises(
        ProfileError, match=r"not a profile summary: (\[\.\.\.\](\[0\])+: expected|it is nested too deeply)"
    ):
        load_profile("mine")


def test_a_file_of_hosts_with_a_hostile_value_is_refused_or_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hosts, "user_directory", lambda: tmp_path / "trained_models")
    good = {"schema": 1, "hosts": {"lab": {"probe_us": 6.5}, "desk": {"probe_us": 3}}}
    for place in leaves(good):
        for hostile in HOSTILE:
            hosts.hosts_file().write_text(text_with(good, place, hostile))
            found = refused_or(hosts.list_hosts, ProfileError)
            assert found is None or all(0 < us < math.inf for us in found.values())
