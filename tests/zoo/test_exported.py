"""Programs that torch.export.save wrote, and files that only say so: nothing in them is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from costmodel import zoo
from costmodel.zoo.size_text import is_arithmetic
from tests.support.archives import edited, rewritten
from tests.zoo.test_zoo import one_line


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "m.pt2"
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(2, 3, 8, 8),)), path)
    return path


def as_pickled_weights(name: str, data: bytes, payload: bytes) -> bytes:
    if "/data/weights/weight_" in name:
        return payload
    if not name.endswith("weights_config.json"):
        return data
    config = json.loads(data)
    for entry in config["config"].values():
        entry["use_pickle"] = True
    return json.dumps(config).encode()


class TestExported:
    def test_keeps_the_sizes_it_was_exported_with(self, exported: Path) -> None:
        loaded = zoo.load(str(exported))
        assert loaded.module(*loaded.inputs).shape == (2, 4, 6, 6)
        assert {tensor.device.type for tensor in [*loaded.module.parameters(), *loaded.inputs]} == {"meta"}
        assert zoo.load(str(exported), batch_size=2).inputs[0].shape[0] == 2
        assert "exported for an input of 2x3x8x8" in one_line(str(exported), batch_size=3)
        assert "as it was exported" in one_line(str(exported), precision="float16")

    def test_no_pickle_in_it_is_executed(self, exported: Path, tmp_path: Path) -> None:
        proof = tmp_path / "executed"
        plain = pickle.dumps(Payload(proof))
        buffer = io.BytesIO()
        torch.save(Payload(proof), buffer)
        saved = buffer.getvalue()
        cases = {
            "inputs": rewritten(
                exported, tmp_path / "a.pt2", lambda name, old: saved if "sample_inputs" in name else old
            ),
            "weights": rewritten(exported, tmp_path / "b.pt2", lambda name, old: as_pickled_weights(name, old, saved)),
            "legacy": rewritten(exported, tmp_path / "c.pt2", lambda _, old: old, **{"data/weights/model.pt": saved}),
            "opaque": rewritten(
                exported, tmp_path / "d.pt2", lambda _, old: old, **{"data/constants/opaque_obj_0": plain}
            ),
            "native": rewritten(exported, tmp_path / "e.pt2", lambda _, old: old, **{"data/aotinductor/m/x.so": b"x"}),
        }
        for case, path in cases.items():
            assert "runs no code from a model file" in one_line(str(path)), case
            assert not proof.exists(), case
        assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ

    def test_nothing_that_it_says_is_evaluated(self, exported: Path, tmp_path: Path) -> None:
        """Sizes are sympy's text, guards Python's, and operators are looked up by name: none reaches the system."""
        call = f"__import__('pathlib').Path('{tmp_path / 'executed'}').touch()"

        def spoilt(change: Callable[[dict[str, Any]], object]) -> Path:
            return edited(exported, tmp_path / "spoilt.pt2", change)

        def size(record: dict[str, Any], text: str) -> None:
            kinds = record["graph_module"]["graph"]["tensor_values"].values()
            next(iter(kinds))["sizes"][0] = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}

        assert "is no arithmetic" in one_line(str(spoilt(lambda record: size(record, f"{call} or 2"))))
        assert "is no arithmetic" in one_line(str(spoilt(lambda record: size(record, f'Symbol("{call}")'))))
        ranges = {call: {"min_val": 0, "max_val": None}}
        assert "is no arithmetic" in one_line(str(spoilt(lambda record: record.update(range_constraints=ranges))))
        nodes = [{"target": "torch.os.system", "inputs": [], "outputs": [], "metadata": {}}]
        program = spoilt(lambda record: record["graph_module"]["graph"]["nodes"].extend(nodes))
        assert "calls 'torch.os.system', which is no operator" in one_line(str(program))
        zoo.load(str(spoilt(lambda record: record.update(guards_code=[f"{call} or True"]))))
        assert not (tmp_path / "executed").exists()

    def test_one_of_any_size_is_loaded(self, tmp_path: Path) -> None:
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=1.5)).eval()
        sizes = {"input": {0: torch.export.Dim("batch", max=64), 2: torch.export.Dim("height", min=4, max=512)}}
        program = torch.export.export(module, (torch.randn(2, 3, 8, 8),), dynamic_shapes=sizes)
        torch.export.save(program, tmp_path / "any.pt2")
        loaded = zoo.load(str(tmp_path / "any.pt2"))
        assert loaded.module(*loaded.inputs).shape == (2, 4, 9, 9)

    def test_a_compressed_one_is_refused(self, exported: Path, tmp_path: Path) -> None:
        """It may be any size unpacked."""
        with zipfile.ZipFile(exported) as old, zipfile.ZipFile(tmp_path / "z.pt2", "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
        assert "is compressed, which torch.export.save does not do" in one_line(str(tmp_path / "z.pt2"))

    def test_one_with_compressed_inputs_is_refused(self, exported: Path, tmp_path: Path) -> None:
        def packed(name: str, data: bytes) -> bytes:
            if not name.endswith("sample_inputs/model.pt"):
                return data
            buffer = io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
                for entry in old.namelist():
                    new.writestr(entry, old.read(entry))
            return buffer.getvalue()

        assert "is compressed" in one_line(str(rewritten(exported, tmp_path / "packed.pt2", packed)))

    @pytest.mark.parametrize(
        ("text", "harmless"),
        [
            ("2*Max(1, s77) + 1", True),
            (
                "Add(Mul(Integer(15), FloorDiv(Symbol('s53', positive=True, integer=True), Integer(2))), Integer(1))",
                True,
            ),
            ("Mul(Float('1.5', precision=53), s0)", True),
            ("open('x')", False),
            ("s0.__class__", False),
            ("Symbol('s0').name", False),
            ("Symbol('exit()')", False),
            ("(lambda: 1)()", False),
            ("[s0 for s0 in (1,)]", False),
            ("__builtins__", False),
            ("1 +", False),
        ],
    )
    def test_what_a_size_may_be(self, text: str, harmless: bool) -> None:
        assert is_arithmetic(text) is harmless

    @pytest.mark.parametrize("kind", ["pickle", "torch.save", "empty", "truncated", "zip", "text", "directory"])
    def test_a_file_that_is_not_a_model_is_refused(self, exported: Path, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "fake.pt2"
        if kind == "directory":
            path.mkdir()
        elif kind == "torch.save":
            torch.save({"weight": torch.zeros(3)}, path)
        elif kind == "zip":
            zipfile.ZipFile(path, "w").close()
        else:
            whole = exported.read_bytes()
            contents = {"pickle": pickle.dumps([1]), "empty": b"", "truncated": whole[: len(whole) // 2], "text": b"hi"}
            path.write_bytes(contents[kind])
        assert "fake.pt2" in one_line(str(path))
