"""Files that others may have written: each reader refuses a hostile one at once, in one line, with its own error."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase, read_cases
from collectors.workloads.convolution_space import ConvUnit, unit_graph
from costmodel.calibration.models_file import read_measured
from costmodel.errors import CheckpointPlanError, CostmodelError, DatasetError, PlanError, ProfileError
from costmodel.memory.checkpoint_plan import CheckpointPlan
from costmodel.planning.plan import Plan, Region
from costmodel.prediction.predict import predict_graph
from costmodel.predictor import trees
from costmodel.predictor.predictor import Predictor
from costmodel.profiles import hosts
from costmodel.profiles.predictor_file import load_predictor, save_predictor
from costmodel.profiles.profile import WHOLE_MODELS, Profile, load_profile, shipped_directory
from costmodel.records import parse_json
from costmodel.report.types import Report
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.training.dataset import read_frame, units_frame, write_frame
from tests.support.predictors import KERNELS, POSITIONS, conv, one_leaf, small_predictor

DEEP = "[" * 100_000
LONG = "9" * 10_000
HOSTILE = (
    *("null", "true", "-1", "0", "1e-300", "1e9", "-1e9", "3e38", "1e308", "-1e308", "1e999", "NaN", "-Infinity"),
    *('""', '"x"', '"\\u001b[2J\\n"', '"\\ud800"', "[]", "[null]", "{}", '{"a": 1, "a": 2}', LONG, f"{LONG}.5", DEEP),
)
"""JSON, or nearly, in place of a value."""
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
HERE = {"device": "test"}


def leaves(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of JSON lie, containers among them."""
    yield place
    if isinstance(data, (dict, list)):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, (*place, key))


def text_with(data: Any, place: tuple[Any, ...], hostile: str) -> str:
    """JSON with something hostile in place of one of its values."""
    whole = json.loads(json.dumps([data]))
    at = whole
    for key in (0, *place)[:-1]:
        at = at[key]
    at[(0, *place)[-1]] = "the hole"
    return json.dumps(whole[0]).replace('"the hole"', hostile)


def mutated(data: Any) -> st.SearchStrategy[str]:
    places = list(leaves(data))
    return st.builds(text_with, st.just(data), st.sampled_from(places), st.sampled_from(HOSTILE))


def refused_or(act: Callable[[], Any], error: type[CostmodelError]) -> Any:
    """The result, or None if the reader's own error says in one short line why there is none."""
    try:
        return act()
    except error as refusal:
        said = str(refusal)
    assert "\n" not in said
    assert len(said) < 600
    return None


# Cards, and what is predicted by them


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
        ProfileError, match=r"mine/card\.json: its costs give .* a latency of -.* a device time of .* us; train"
    ):
        predicted(users, predictor, json.dumps(CARD | {"costs": costs}))


@pytest.mark.parametrize("nested", [6, 900, 100_000])
def test_what_a_card_only_shows_is_not_nested_deeply_either(users: Path, nested: int):
    (users / "card.json").write_text(json.dumps(CARD)[:-1] + f', "more": {"[" * nested}{"]" * nested}}}')
    with pytest.raises(
        ProfileError, match=r"not a profile summary: (\[\.\.\.\](\[0\])+: expected|it is nested too deeply)"
    ):
        load_profile("mine")


# Hosts and plans


def test_a_file_of_hosts_with_a_hostile_value_is_refused_or_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hosts, "user_directory", lambda: tmp_path / "trained_models")
    good = {"schema": 1, "hosts": {"lab": {"probe_us": 6.5}, "desk": {"probe_us": 3}}}
    for place in leaves(good):
        for hostile in HOSTILE:
            hosts.hosts_file().write_text(text_with(good, place, hostile))
            found = refused_or(hosts.list_hosts, ProfileError)
            assert found is None or all(0 < us < math.inf for us in found.values())


PLAN = Plan(
    *("net", "0" * 64, "nvidia-h200", "exact", ("fold_batch_norm",), "graph"),
    (Region("inductor", ("0", "1"), ("a", "b"), 3.5, "fused"), Region("eager", ("2",), (), 1.0, stream=1)),
    *({"plan": 1.5}, 2.0, "2.13.0", False, 12),
)


@SETTINGS
@given(text=mutated(PLAN.to_dict()))
def test_a_plan_with_a_hostile_value_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, text: str):
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(text)
    plan = refused_or(lambda: Plan.load(path), PlanError)
    if plan is not None:
        assert all(0 <= us < math.inf for us in (*plan.latency_ms.values(), plan.build_s))
        assert all(0 <= region.us < math.inf and region.stream >= 0 and region.ops for region in plan.regions)
        assert json.loads(plan.to_json())["schema"] == 4


def test_a_checkpointing_plan_with_a_hostile_value_is_refused_or_read(tmp_path: Path):
    good = json.loads(CheckpointPlan("net", ("a", "b.c"), 100, 60, 2.5).to_json())
    path = tmp_path / "plan.json"
    for place in leaves(good):
        for hostile in HOSTILE:
            path.write_text(text_with(good, place, hostile))
            plan = refused_or(lambda: CheckpointPlan.load(path), CheckpointPlanError)
            assert plan is None or (0 <= plan.added_us < math.inf and min(plan.stashed_before, plan.stashed_after) >= 0)


def test_a_module_beside_one_whose_name_it_begins_with_is_no_part_of_it(tmp_path: Path):
    plan = CheckpointPlan("net", ("layer", "layer1.a", "layer1.b", "layer10"), 1, 1, 1.0)
    plan.save(tmp_path / "plan.json")
    assert CheckpointPlan.load(tmp_path / "plan.json") == plan
    replace(plan, modules=("layer1.b.c", "layer", "layer1.b")).save(tmp_path / "plan.json")
    with pytest.raises(
        CheckpointPlanError, match=r"the module layer1\.b\.c is listed twice or is inside another listed module"
    ):
        CheckpointPlan.load(tmp_path / "plan.json")


def test_plans_of_100_000_modules_take_a_time_in_proportion(tmp_path: Path):
    # what is quadratic in these takes minutes: 10^10 comparisons of names
    names = tuple(f"layers.{number}" for number in range(100_000))
    region = PLAN.to_dict()["regions"][0]
    regions = [region | {"ops": [name], "layers": [name]} for name in names]
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_dict() | {"regions": regions}))
    loaded = Plan.load(tmp_path / "plan.json")
    assert [region.ops for region in loaded.regions] == [(name,) for name in names]
    with pytest.raises(PlanError, match=r"do not fit the model at operator 0;"):
        loaded.check_regions(GRAPH)
    repeated = tuple(Region("eager", (op.name,), (), 1.0) for op in GRAPH.ops) * 30_000
    with pytest.raises(PlanError, match=r"do not fit the model at operator 0;"):
        replace(PLAN, regions=repeated).check_regions(GRAPH)
    plan = CheckpointPlan("net", names, 1, 1, 1.0)
    plan.save(tmp_path / "checkpoint.json")
    assert CheckpointPlan.load(tmp_path / "checkpoint.json") == plan


# Predictors


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "numpy") as file:
        return dict(file.metadata())


def grown(predictor: Predictor) -> Predictor:
    trees_too = replace(
        predictor.groups["conv"],
        trees=one_leaf(1.0),
        host_trees=one_leaf(3.0),
        host_us=np.full(8, 7.0, np.float32),
        known=np.zeros(8, np.float32),
        workspace=np.ones(8, np.float32),
    )
    return replace(predictor, groups={"conv": trees_too})


@pytest.fixture(scope="module")
def saved(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predictor") / "good.safetensors"
    save_predictor(grown(predictor), path)
    return path


def check_estimates(path: Path) -> None:
    found = refused_or(lambda: load_predictor(path), ProfileError)
    if found is None:
        return
    kernels = [*KERNELS, conv(512, 56)]  # some that it has measured, and one that is unlike them
    for estimate in refused_or(lambda: found.predict(kernels, [*POSITIONS, 0.0]), ProfileError) or ():
        assert 0 < estimate.low_us <= estimate.us <= estimate.high_us < math.inf
        assert 0 <= estimate.host_us < math.inf
    assert min(refused_or(lambda: found.workspace_bytes(KERNELS), ProfileError) or [0]) >= 0


@SETTINGS
@given(data=st.data())
def test_a_predictor_whose_header_has_a_hostile_value_is_refused_or_predicts_possible_times(
    saved: Path, data: st.DataObject
):
    metadata = metadata_of(saved)
    part = data.draw(st.sampled_from(["groups", "device"]))
    metadata[part] = data.draw(mutated(json.loads(metadata[part])))
    path = saved.with_name("header.safetensors")
    save_file(load_file(saved), path, metadata)
    check_estimates(path)


NUMBERS = (-3e38, -1e9, -1.0, -1e-30, 0.0, 1e-38, 1e-6, 1e4, 1e9, 3e38, math.inf, -math.inf, math.nan)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_predictor_whose_tensors_hold_a_hostile_number_is_refused_or_predicts_possible_times(
    saved: Path, data: st.DataObject
):
    tensors = load_file(saved)
    name = data.draw(st.sampled_from(sorted(name for name in tensors if tensors[name].size)))
    tensor = tensors[name].copy()
    limits = np.iinfo(tensor.dtype) if tensor.dtype.kind == "i" else None
    value = data.draw(st.sampled_from(NUMBERS) if limits is None else st.sampled_from([limits.min, -1, 1, limits.max]))
    if data.draw(st.booleans()):
        tensor[...] = value
    else:
        tensor.flat[data.draw(st.integers(0, tensor.size - 1))] = value
    path = saved.with_name("tensors.safetensors")
    save_file({**tensors, name: tensor}, path, metadata_of(saved))
    check_estimates(path)


def test_networks_whose_layers_each_may_be_and_whose_product_may_not_be_are_refused(saved: Path):
    tensors = load_file(saved)
    for layer in range(1, 12):  # each multiplies by 6 * 1e5
        tensors[f"conv/0/{layer}/weight"] = np.full((6, 1 if layer == 11 else 6), 1e5, np.float32)
        tensors[f"conv/0/{layer}/bias"] = np.zeros(1 if layer == 11 else 6, np.float32)
    path = saved.with_name("deep.safetensors")
    save_file(tensors, path, metadata_of(saved))
    with pytest.raises(ProfileError, match="the networks of group conv exceed the range of 32-bit floats"):
        load_predictor(path)


def test_a_tree_deeper_than_any_that_was_grown_ends():
    depth = 2 * trees.DEEPEST  # node after node on the left, each with a leaf far behind on its right
    chain = trees.Trees(
        feature=np.array([0] * depth + [-1] * (depth + 1), np.int8),
        number=np.ones(2 * depth + 1, np.float32),
        right=np.array([depth] * depth + [0] * (depth + 1), np.int16),
        roots=np.zeros(1, np.int32),
    ).verify(1)
    with pytest.raises(
        ProfileError, match="a tree of the predictor is deeper than 1024 nodes; train the profile again"
    ):
        chain.forward(np.zeros((1, 1), np.float32))


# Measurements


MEASURED = {
    "model": "alexnet",
    "batch_size": 1,
    "precision": "float32",
    "layout": "nchw",
    "environment": 0,
    "session": "a",
    "probe_us": 6.0,
    "default_host_us": [5.0] * 5,
    "default_error": 1e-6,
    "disturbed": [],
    "latency_us": {"eager/default": [[20.0] * 5] * 2, "default": [[10.0] * 5] * 2},
}


@SETTINGS
@given(text=mutated(MEASURED))
def test_a_measured_model_with_a_hostile_value_is_refused_or_has_possible_times(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.getbasetemp() / "models.jsonl"
    path.write_text('{"schema": 1}\n' + text)
    found = refused_or(lambda: read_measured(path), DatasetError)
    for case in () if found is None else found[0]:
        assert all(0 < us < math.inf for us in case.medians.values())
        assert 0 < case.host_speed < math.inf


RECORD = {
    "attempt": 1,
    "device_us": [1.0, 2.0, 3.0, 4.0, 5.0],
    "host_us": None,
    "relative_error": math.nan,
    "copies": 4,
}


@SETTINGS
@given(text=mutated({**RECORD, "graph": "graph", "runner": "aten", "position": 0.5, "uses": 1}))
def test_a_ledger_whose_record_has_a_hostile_value_is_refused_or_has_possible_times(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.getbasetemp() / "ledger.sqlite"
    if not path.exists():
        with Ledger(path, HERE) as ledger:
            ledger.finish(UnitCase("graph", "aten"), "ok", RECORD)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE results SET record = ?", (text,))
    database.close()
    with Ledger(path) as ledger:
        rows = refused_or(lambda: list(ledger.rows()), DatasetError)
    for row in rows or ():
        times = [us for name in ("device_us", "host_us") for us in row.get(name) or () if us is not None]
        assert all(0 <= us < math.inf for us in times)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE results SET key = x'ff'", "cannot be read: [0]: expected str, got bytes"),
        ("UPDATE results SET unit = NULL", "cannot be read: [1]: expected str, got null"),
        ("UPDATE results SET record = x'7b7d'", "cannot be read: expected str, got bytes"),
        ("UPDATE results SET record = CAST(x'ff' AS TEXT)", "cannot be read: Could not decode"),
        ("CREATE VIEW more AS SELECT 1", "not a ledger: it has the view more"),
        ("CREATE TRIGGER t AFTER INSERT ON about BEGIN DELETE FROM results; END", "it has the trigger t"),
        ("UPDATE about SET value = '[]' WHERE name = 'environment'", "not a ledger: expected object, got array"),
    ],
)
def test_a_ledger_of_other_types_is_refused(tmp_path: Path, statement: str, said: str):
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, HERE) as ledger:
        ledger.finish(UnitCase("graph", "aten"), "ok", RECORD)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()

    def read() -> None:
        with Ledger(path) as ledger:
            list(ledger.rows())

    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read()
    assert "\n" not in str(caught.value)


ROW = {
    "key": "k",
    "graph": "graph",
    "runner": "aten",
    "status": "ok",
    "device_us": [1, 2, 3, 4, 5],
    "unit": "",
    "way": "",
}


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("device_us_p50", pa.array([-1.0]), "its column device_us_p50 holds -1 to -1, not 0 to 1e+15"),
        ("device_us_p50", pa.array([math.inf]), "its column device_us_p50 holds inf to inf"),
        ("device_us_p50", pa.array([0.0]), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array([math.nan]), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array([None], pa.float32()), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array(["fast"]), "its column device_us_p50 is string, not numbers"),
        ("device_us_p50", pa.array([[1.0]]), "its column device_us_p50 is list"),
        ("device_us_p50", pa.array([True]), "its column device_us_p50 is bool, not numbers"),
        ("host_us_p10", pa.array([-1e-3]), "its column host_us_p10 holds -0.001 to -0.001"),
        ("position", pa.array([1.5]), "its column position holds 1.5 to 1.5, not 0 to 1"),
        ("copies", pa.array([-4]), "its column copies holds -4 to -4"),
        ("graph", pa.array([b"\xff"]), "its column graph is binary, not text"),
        ("status", pa.array([1]), "its column status is int64, not text"),
        ("runner", pa.array(["aten"]).dictionary_encode(), "its column runner is dictionary"),
    ],
)
def test_a_dataset_of_other_types_or_with_impossible_times_is_refused(
    tmp_path: Path, column: str, values: pa.Array, said: str
):
    path = tmp_path / "units.parquet"
    write_frame(units_frame([ROW]), path, {})
    assert len(read_frame(path)[0]) == 1
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
    with pytest.raises(DatasetError, match=re.escape(f"{path}: not a dataset: {said}")):
        read_frame(path)


# What is no regular file


def load_card(path: Path) -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("costmodel.profiles.profile.user_directory", lambda: path.parent.parent)
        return load_profile(path.parent.name)


def read_hosts(path: Path) -> Mapping[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "hosts_file", lambda: path)
        return hosts.list_hosts()


READERS: Mapping[str, tuple[Callable[[Path], object], type[CostmodelError]]] = {
    "hosts.json": (read_hosts, ProfileError),
    "card.json": (load_card, CostmodelError),  # a loop of links is no profile; anything else is a damaged one
    "plan.json": (Plan.load, PlanError),
    "checkpoint.json": (CheckpointPlan.load, CheckpointPlanError),
    "predictor.safetensors": (load_predictor, ProfileError),
    "whole_models.safetensors": (ResidualModel.load, ProfileError),
    "models.jsonl": (read_measured, DatasetError),
    "units.parquet": (read_frame, DatasetError),
    "ledger.sqlite": (lambda path: Ledger(path, HERE), DatasetError),
    "cases.jsonl": (lambda path: list(read_cases(path)), DatasetError),
}
KINDS: Mapping[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "directory": Path.mkdir,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "loop of links": lambda path: path.symlink_to(path.name),
    "empty file": Path.touch,
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00" * 100),
    "huge file": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


EMPTY = {("ledger.sqlite", "empty file"), ("cases.jsonl", "empty file")}
"""Files without a byte that are what they should be."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in READERS for kind in KINDS if kind != "huge file" and (name, kind) not in EMPTY],
)
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, name: str, kind: str):
    read, error = READERS[name]
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    KINDS[kind](path)
    with pytest.raises(error) as caught:  # a reader that waits for a writer is ended by faulthandler's deadline
        read(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value) or "no hardware profile is called 'mine'" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READERS if name != "ledger.sqlite"])
def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path, name: str):
    read, error = READERS[name]
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    KINDS["huge file"](path)
    with pytest.raises(error, match=rf"{re.escape(name)}: .*it is larger than \d+ MiB"):
        read(path)


# Text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (LONG, "an integer of 10000 digits"),
        (f"-{LONG}", "an integer of 10001 digits"),
        ("1e999", "1e999 is out of range"),
        ("NaN", "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' occurs twice"),
        (b'"\xff"', "not text in UTF-8"),
        ('"\\ud800"', "not text in UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        ("{} {}", "Extra data"),
        ("", "Expecting value"),
        ('{"\\u001b[2J\\n": 1, "\\u001b[2J\\n": 1}', r"the key '\x1b[2J\n' occurs twice"),
    ],
)
def test_what_is_no_json_is_refused_in_one_line(text: str | bytes, said: str):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        parse_json(text)
    assert str(caught.value).isprintable()


def test_names_of_any_language_and_characters_of_two_halves_are_read():
    assert parse_json('{"\\u00e9": "\\ud83d\\ude00", "a": -0.0, "b": 123456789012345678}') == {
        "\N{LATIN SMALL LETTER E WITH ACUTE}": "\N{GRINNING FACE}",
        "a": 0.0,
        "b": 123456789012345678,
    }
