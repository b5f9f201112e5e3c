"""Merging datasets: which row replaces which, and which files are never mixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.whole_models.merge import merge_models, merge_units
from costmodel.errors import DatasetError
from costmodel.training.dataset import read_frame, units_frame, write_frame

HERE = {"device": "NVIDIA H200", "torch": "2.11.0", "cores": "16"}


def units(path: Path, environment: dict[str, str], *rows: tuple[str, str, float]) -> Path:
    records = [
        {"key": key, "unit": "", "graph": "", "runner": "aten", "status": status, "device_us": [us] * 5}
        for key, status, us in rows
    ]
    write_frame(units_frame(records), path, {"environment": environment})
    return path


def test_a_later_row_replaces_an_earlier_one_unless_only_that_is_to_be_trusted(tmp_path):
    first = units(tmp_path / "a.parquet", HERE, ("x", "ok", 1.0), ("y", "ok", 2.0), ("z", "noisy", 3.0))
    second = units(
        tmp_path / "b.parquet", HERE | {"cores": "32"}, ("x", "ok", 4.0), ("y", "noisy", 5.0), ("z", "ok", 6.0)
    )
    assert merge_units([first, second], first) == 3
    frame, about = read_frame(first)
    assert dict(zip(frame["key"], frame["device_us_p50"], strict=True)) == {"x": 4.0, "y": 2.0, "z": 6.0}
    assert about["environment"] == HERE
    assert [one["cores"] for one in about["environments"]] == ["16", "32"]
    assert about["statuses"] == {"ok": 3}
    assert merge_units([first, second], first) == 3  # nothing changes the second time
    assert len(read_frame(first)[1]["environments"]) == 2


def test_a_kernel_of_a_model_that_is_also_drawn_at_random_stays_a_kernel_of_that_model(tmp_path):
    def table(name: str, *rows: tuple[str, str, float | None, float]) -> Path:
        records = [
            {"key": key, "unit": "", "status": "ok", "source": source, "position": place, "device_us": [us] * 5}
            for key, source, place, us in rows
        ]
        write_frame(units_frame(records), tmp_path / name, {"environment": HERE})
        return tmp_path / name

    model = table("model", ("x", "resnet18@1 float32", 0.25, 1.0), ("y", "conv", None, 1.0), ("z", "conv", None, 1.0))
    drawn = table("drawn", ("x", "conv", None, 2.0), ("y", "vgg11@1 float32", 0.5, 2.0), ("z", "matmul", None, 2.0))
    merge_units([model, drawn], tmp_path / "out")
    frame = read_frame(tmp_path / "out")[0].set_index("key")
    assert frame["source"].to_dict() == {"x": "resnet18@1 float32", "y": "vgg11@1 float32", "z": "conv"}
    assert frame["position"].dropna().to_dict() == {"x": 0.25, "y": 0.5}
    assert set(frame["device_us_p50"]) == {2.0}


def test_other_hardware_is_not_mixed_in(tmp_path):
    first = units(tmp_path / "a.parquet", HERE, ("x", "ok", 1.0))
    second = units(tmp_path / "b.parquet", HERE | {"device": "NVIDIA H100"}, ("y", "ok", 1.0))
    with pytest.raises(DatasetError, match="device was NVIDIA H100, and NVIDIA H200 in the first file"):
        merge_units([first, second], tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_cpus_of_other_names_or_threads_are_not_mixed(tmp_path):
    cpu = {"device": "cpu", "torch": "2.11.0", "host_cpu": "a", "threads": "8"}
    first = units(tmp_path / "a.parquet", cpu, ("x", "ok", 1.0))
    second = units(tmp_path / "b.parquet", cpu | {"threads": "4"}, ("y", "ok", 1.0))
    with pytest.raises(DatasetError, match="threads was 4, and 8 in the first file"):
        merge_units([first, second], tmp_path / "out.parquet")


def case(model: str, latency: float | None) -> str:
    record = {"model": model, "batch_size": 1, "precision": "float32", "layout": "nchw"}
    return json.dumps(record | ({"latency_us": {"default": [[latency] * 5]}} if latency else {}))


def test_whole_models_keep_the_latest_record_that_has_a_latency(tmp_path, capsys):
    header = json.dumps({"schema": 1, "environment": HERE})
    (tmp_path / "a.jsonl").write_text(
        "\n".join([header, case("tv:vgg11", 1.0), case("alexnet", 2.0), case("vit", None)])
    )
    failed = json.dumps({**json.loads(case("resnet18", None)), "error": "x"})
    (tmp_path / "b.jsonl").write_text("\n".join([case("vgg11", 3.0), case("alexnet", None), case("vit", 4.0), failed]))
    (tmp_path / "b.env.json").write_text(json.dumps(HERE))
    assert merge_models([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl") == 3
    _, *rows = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    found = {row["model"]: row["latency_us"]["default"][0][2] for row in rows}
    assert found == {"vgg11": 3.0, "alexnet": 2.0, "vit": 4.0}
    merge_models([tmp_path / "b.jsonl"], tmp_path / "alone.jsonl")  # a sweep's own file has no first line yet
    assert json.loads((tmp_path / "alone.jsonl").read_text().splitlines()[0])["schema"] == 1
    again = tmp_path / "again.jsonl"
    merge_models([tmp_path / "out.jsonl", tmp_path / "b.jsonl"], again)
    assert again.read_text().splitlines()[1:] == (tmp_path / "out.jsonl").read_text().splitlines()[1:]


def test_machines_keep_their_records_of_a_case(tmp_path):
    for name, cores, latency in (("a", "16", 1.0), ("b", "32", 2.0)):
        (tmp_path / f"{name}.jsonl").write_text(case("vgg11", latency))
        (tmp_path / f"{name}.env.json").write_text(json.dumps(HERE | {"cores": cores}))
    assert merge_models([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "out.jsonl") == 2
    about, *rows = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [one["cores"] for one in about["environments"]] == ["16", "32"]
    assert [(row["environment"], row["latency_us"]["default"][0][0]) for row in rows] == [(0, 1.0), (1, 2.0)]


def test_processes_that_records_name_are_kept_apart(tmp_path):
    lines = [json.dumps(json.loads(case("vgg11", float(us))) | {"process": us}) for us in (1, 2)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.env.json").write_text(json.dumps(HERE))
    (tmp_path / "before.jsonl").write_text(case("vgg11", 3.0))
    (tmp_path / "before.env.json").write_text(json.dumps(HERE))
    out = tmp_path / "out.jsonl"
    assert merge_models([tmp_path / "before.jsonl", tmp_path / "a.jsonl"], out) == 3
    assert [json.loads(line).get("process") for line in out.read_text().splitlines()[1:]] == [None, 1, 2]


def test_sessions_number_their_processes_by_themselves(tmp_path):
    record = json.loads(case("vgg11", 1.0)) | {"process": 1}
    other = {"latency_us": {"eager": record["latency_us"]["default"]}}
    monday, tuesday = {"session": "monday"}, {"session": "tuesday"}
    for name, more in (("a", monday), ("b", tuesday), ("c", monday | other)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record | more))
        (tmp_path / f"{name}.env.json").write_text(json.dumps(HERE))
    files = [tmp_path / f"{name}.jsonl" for name in "abca"]  # one of them twice
    assert merge_models(files, tmp_path / "out.jsonl") == 3
    assert merge_models([tmp_path / "out.jsonl", files[1]], tmp_path / "again.jsonl") == 3


def test_every_process_keeps_its_record_and_the_processes_count_on(tmp_path):
    for name, cores, lines in (("a", "16", [1.0]), ("b", "32", [2.0]), ("c", "16", [3.0])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(case("vgg11", latency) for latency in lines))
        (tmp_path / f"{name}.env.json").write_text(json.dumps(HERE | {"cores": cores}))
    both = tmp_path / "both.jsonl"
    assert merge_models([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], both, every_process=True) == 2
    assert merge_models([both, tmp_path / "c.jsonl"], both, every_process=True) == 3
    _, *rows = map(json.loads, both.read_text().splitlines())
    found = [(row["process"], row["environment"], row["latency_us"]["default"][0][0]) for row in rows]
    assert found == [(1, 0, 1.0), (2, 1, 2.0), (3, 0, 3.0)]


def test_compile_times_of_two_modes_are_two_records(tmp_path):
    file = tmp_path / "compile.jsonl"
    lines = [json.loads(case("vgg11", 1.0)) | {"mode": mode} for mode in ("default", "reduce-overhead", "default")]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert merge_models([file], tmp_path / "out.jsonl") == 2


def test_gpus_of_one_name_with_other_memory_are_not_mixed(tmp_path: Path):
    here = HERE | {"memory_bytes": "100000000000"}
    first = units(tmp_path / "a.parquet", here, ("x", "ok", 1.0))
    near = units(tmp_path / "b.parquet", here | {"memory_bytes": "99000000000"}, ("y", "ok", 1.0))  # another driver
    far = units(tmp_path / "c.parquet", here | {"memory_bytes": "80000000000"}, ("z", "ok", 1.0))
    assert merge_units([first, near], tmp_path / "out.parquet") == 2
    said = r"c\.parquet: its GPU has 80,000,000,000 bytes of memory, that of the first file 100,000,000,000"
    with pytest.raises(DatasetError, match=said):
        merge_units([first, far], tmp_path / "out.parquet")
