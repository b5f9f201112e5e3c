"""Exported programs made to write files, run code or never end: refused before anything runs, the disk untouched."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel import zoo
from costmodel.capture.trace import capture
from costmodel.cli import main
from costmodel.errors import CaptureError, CostmodelError, RequestError
from costmodel.ir.pure_operators import PURE
from tests.support.archives import Record, edited, exported, node, nodes_of, rewritten, tensor, with_nodes
from tests.zoo.test_zoo import one_line

PRECIOUS = b"precious" * 8
OPENED = "opened"
NUMBERS = len(PRECIOUS) // 4


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "good.pt2"
    return exported(path, nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.zeros(2, 3, 8, 8))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(PRECIOUS)
    return path


def opening(path: Path, size: int = NUMBERS) -> Record:
    """A node that maps a file into memory, to be written through."""
    arguments = {"filename": {"as_string": str(path)}, "shared": {"as_bool": True}, "size": {"as_int": size}}
    return node("torch.ops.aten.from_file.default", OPENED, **arguments)


def spec(path: Path) -> str:
    """A structure of inputs whose default factory is in a module of that path."""
    context = json.dumps({"default_factory_module": path.stem, "default_factory_name": "x", "dict_context": []})
    return json.dumps([1, {"type": "collections.defaultdict", "context": context, "children_spec": []}])


ZERO, FLOAT = {"as_int": 0}, {"as_float": 0.0}
MAPPED = tensor(OPENED)
WRITES = {
    "fill_": node("torch.ops.aten.fill_.Scalar", "w", self=MAPPED, value=FLOAT),
    "zero_": node("torch.ops.aten.zero_.default", "w", self=MAPPED),
    "in-place": node("torch.ops.aten.mul_.Tensor", "w", self=MAPPED, other=MAPPED),
    "out=": node("torch.ops.aten.sub.out", "w", self=MAPPED, other=MAPPED, out=MAPPED),
    "indexed": node(
        "torch.ops.aten.index_put_.default",
        *("w",),
        self=MAPPED,
        indices={"as_optional_tensors": [{"as_tensor": {"name": OPENED}}]},
        values=MAPPED,
    ),
    "copy_": node("torch.ops.aten.copy_.default", "w", self=MAPPED, src=MAPPED),
}


class TestFilesStayAsTheyAre:
    @pytest.mark.parametrize("way", WRITES)
    def test_no_way_of_writing_reaches_a_file(self, good: Path, victim: Path, tmp_path: Path, way: str) -> None:
        path = with_nodes(good, tmp_path / "bad.pt2", [opening(victim), WRITES[way]], NUMBERS)
        assert "calls 'torch.ops.aten.from_file.default', which is no operator" in one_line(str(path))
        assert victim.read_bytes() == PRECIOUS

    @pytest.mark.parametrize("size", [NUMBERS, 1 << 31])
    def test_no_file_is_made_or_extended(self, good: Path, victim: Path, tmp_path: Path, size: int) -> None:
        """2^31 numbers are 2^33 bytes, to which a shared file would be extended."""
        for target in (tmp_path / "new", victim):
            path = with_nodes(good, tmp_path / "bad.pt2", [opening(target, size)], size)
            assert "from_file" in one_line(str(path))
        assert {found.name for found in tmp_path.iterdir()} == {"bad.pt2", "victim"}
        assert victim.read_bytes() == PRECIOUS

    def test_the_command_line_says_so_in_one_line(
        self, good: Path, victim: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = with_nodes(good, tmp_path / "bad.pt2", [opening(victim), WRITES["fill_"]], NUMBERS)
        assert main(["predict", str(path), "--hardware", "nvidia-h200"]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
        assert victim.read_bytes() == PRECIOUS

    @pytest.mark.parametrize(
        "target",
        [
            *("torch.ops.aten.from_file.out", "torch.ops.aten.add.out", "torch.ops.aten.set_.source_Tensor"),
            *("torch.ops.prim.device.default", "torch.ops.mylib.write.default", "torch.ops.higher_order.cond"),
            *("torch.ops.inductor.resize_storage_bytes_.default", "torch.save", "torch.hub.load", "#custom:write"),
            *("_operator.setitem", "_operator.methodcaller", "_operator.lshift", "math.factorial", "print"),
        ],
    )
    def test_other_operators_are_refused_by_name(self, good: Path, tmp_path: Path, target: str) -> None:
        path = edited(good, tmp_path / "bad.pt2", lambda program: nodes_of(program)[1].update(target=target))
        assert f"calls '{target}', which is no operator" in one_line(str(path))

    def test_an_operator_that_a_package_registers_is_refused(self, good: Path, tmp_path: Path) -> None:
        library = torch.library.Library("costmodel_test", "DEF")
        library.define("write(Tensor self) -> Tensor")
        library.impl("write", lambda x: (tmp_path / "new").touch() or x, "CompositeExplicitAutograd")
        target = "torch.ops.costmodel_test.write.default"
        path = edited(good, tmp_path / "bad.pt2", lambda program: nodes_of(program)[1].update(target=target))
        assert f"calls '{target}'" in one_line(str(path))
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize(("text", "accepted"), [("none", True), ("tanh", True), ("/etc/passwd", False)])
    def test_texts_are_those_of_an_operators_options(
        self, good: Path, tmp_path: Path, text: str, accepted: bool
    ) -> None:
        def edit(program: Record) -> None:
            option = {"name": "approximate", "arg": {"as_string": text}, "kind": 2}
            last = nodes_of(program)[1]
            last.update(target="torch.ops.aten.gelu.default", inputs=[*last["inputs"], option])

        path = edited(good, tmp_path / "gelu.pt2", edit)
        if accepted:
            loaded = zoo.load(str(path))
            assert [op.name for op in capture(loaded.module, loaded.inputs).ops]
        else:
            assert "with the text '/etc/passwd', which is none of its options" in one_line(str(path))


REGISTERED = sorted(name for name in torch._C._dispatch_get_all_op_names() if "::" in name)


def arguments_for(target: str, victim: Path) -> dict[str, Record]:
    """Arguments that an operator takes: tensors of the graph, small numbers, and a file's name for every text."""
    namespace, _, rest = target.partition("::")
    name, _, overload = rest.partition(".")
    found: dict[str, Record] = {}
    with contextlib.suppress(AttributeError, RuntimeError):
        schema = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")._schema
        for argument in schema.arguments:
            kind = str(argument.type)
            values: dict[str, Record] = {
                "Tensor": tensor("conv2d"),
                "List[Tensor]": {"as_tensors": [{"name": "conv2d"}]},
                "int": {"as_int": 1},
                "number": FLOAT,
                "bool": {"as_bool": True},
                "str": {"as_string": str(victim)},
            }
            if kind in values:
                found[argument.name] = values[kind]
            elif kind.startswith("Optional") is False:
                found[argument.name] = {"as_ints": [1]}
    return found


class TestAnyOperator:
    @settings(max_examples=80, deadline=None)
    @given(target=st.sampled_from(REGISTERED))
    def test_a_graph_with_another_operator_is_predicted_or_refused(
        self, good: Path, tmp_path_factory: pytest.TempPathFactory, target: str
    ) -> None:
        """Files stay as they are, whichever operator of torch or its packages a graph calls."""
        folder = tmp_path_factory.mktemp("any")
        victim = folder / "victim"
        victim.write_bytes(PRECIOUS)
        qualified = target.replace("::", ".") if "." in target else target.replace("::", ".") + ".default"

        def edit(program: Record) -> None:
            changed = node(f"torch.ops.{qualified}", "relu", **arguments_for(target, victim))
            nodes_of(program)[1].update(changed)

        path = edited(good, folder / "any.pt2", edit)
        refused = pytest.raises(RequestError) if qualified not in PURE else contextlib.suppress(CostmodelError)
        with refused:
            loaded = zoo.load(str(path))
            capture(loaded.module, loaded.inputs)
        assert {found.name for found in folder.iterdir()} == {"any.pt2", "victim"}
        assert victim.read_bytes() == PRECIOUS


class TestNoTextRuns:
    """torch writes names into the source of a function, and imports the modules that structures name."""

    def test_names_of_inputs(self, good: Path, tmp_path: Path) -> None:
        code = f"input=open({str(tmp_path / 'new')!r}, 'w').close()"
        path = rewritten(good, tmp_path / "bad.pt2", lambda name, data: _renamed(name, data, '"input"', code))
        assert "where a name should be" in one_line(str(path))
        assert not (tmp_path / "new").exists()

    def test_names_of_parameters(self, good: Path, tmp_path: Path) -> None:
        code = f"0.weight\"), open({str(tmp_path / 'new')!r}, 'w').close(), (\""
        path = rewritten(good, tmp_path / "bad.pt2", lambda name, data: _renamed(name, data, '"0.weight"', code))
        assert "where a name should be" in one_line(str(path))
        assert not (tmp_path / "new").exists()

    def test_names_of_arguments(self, good: Path, tmp_path: Path) -> None:
        code = f"input=open({str(tmp_path / 'new')!r}, 'w').close()"
        path = edited(good, tmp_path / "bad.pt2", lambda program: _signature(program).update(forward_arg_names=[code]))
        assert "where a name should be" in one_line(str(path))
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("key", ["in_spec", "out_spec"])
    def test_modules_that_structures_name(
        self, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        code = tmp_path / "hostile_module.py"
        code.write_text(f"open({str(tmp_path / 'new')!r}, 'w').close(); x = dict")
        monkeypatch.syspath_prepend(tmp_path)
        enumeration = {"type": "builtins.dict", "children_spec": []}
        enumeration["context"] = json.dumps([{"__enum__": True, "fqn": f"{code.stem}:x", "name": "y"}])
        for structure in (spec(code), json.dumps([1, enumeration])):
            changed = {key: structure}
            path = edited(good, tmp_path / "bad.pt2", lambda program, new=changed: _signature(program).update(new))
            assert "other than tensors in tuples, lists and dicts" in one_line(str(path))
        assert not (tmp_path / "new").exists()

    def test_programs_by_other_names(self, good: Path, tmp_path: Path) -> None:
        """torch reads any record of the folder as a program, whatever its name ends in."""
        path = rewritten(good, tmp_path / "bad.pt2", lambda _, data: data, **{"models/other.text": b"{}"})
        assert "holds no exported program" in one_line(str(path))

    @pytest.mark.parametrize("argument", [{"as_operator": "os.system"}, {"as_strings": ["a"]}, {"as_custom_obj": {}}])
    def test_arguments_that_are_no_data(self, good: Path, tmp_path: Path, argument: Record) -> None:
        def edit(program: Record) -> None:
            nodes_of(program)[1]["inputs"][0]["arg"] = argument

        assert "neither a tensor nor a number" in one_line(str(edited(good, tmp_path / "bad.pt2", edit)))


def _renamed(name: str, data: bytes, old: str, new: str) -> bytes:
    return data.replace(old.encode(), json.dumps(new).encode()) if name.endswith(".json") else data


def _signature(program: Record) -> Record:
    found: Record = program["graph_module"]["module_call_graph"][0]["signature"]
    return found


class TestSizesEnd:
    @pytest.mark.parametrize(
        "text",
        [
            *("9**9**9**9", "((9**16)**16)**16", "2**s0", "Pow(9, Pow(9, 9))", "Pow(Integer(9), Integer(99999999))"),
            *("LShift(1, 10**9)", "LShift(Integer(1), Integer(1000000000))", "1 << 10**9", "RoundDecimal(s0, 10**9)"),
            *("9" * 5000, "9" * 30, "Integer('" + "9" * 100 + "')", "Float('1e999999999', precision=53)"),
            *("(" * 500 + "s0" + ")" * 500, "-" * 500 + "s0", "Max(" * 30 + "s0" + ", 1)" * 30),
            *("Max(" + ", ".join(f"s{n}*s{n + 1}" for n in range(100)) + ")", "(s0 + s1)*" * 12 + "s2"),
            *("Float('1', precision=100000000)", "u99999999999"),
        ],
    )
    def test_a_size_that_explodes_is_refused(self, good: Path, tmp_path: Path, text: str) -> None:
        size = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
        assert "a size that is no arithmetic, or too large" in one_line(str(_resized(good, tmp_path, size)))
        ranges = {"range_constraints": {text: {"min_val": 0, "max_val": None}}}
        path = edited(good, tmp_path / "ranges.pt2", lambda program: program.update(ranges))
        assert "a size that is no arithmetic, or too large" in one_line(str(path))

    @pytest.mark.parametrize("size", [-1, 1 << 41, 10**18, 10**400])
    def test_a_size_that_cannot_be_is_refused(self, good: Path, tmp_path: Path, size: int) -> None:
        assert "which no device can hold" in one_line(str(_resized(good, tmp_path, {"as_int": size})))

    def test_numbers_have_64_bits(self, good: Path, tmp_path: Path) -> None:
        path = edited(good, tmp_path / "bad.pt2", lambda program: program["schema_version"].update(minor=1 << 64))
        assert "holds a number of more than 64 bits" in one_line(str(path))

    def test_arithmetic_of_the_graph_ends(self, good: Path, tmp_path: Path) -> None:
        """A number squared 64 times has 2^64 digits."""
        graph_types: Record = {}

        def squared(step: int) -> Record:
            factor = {"as_sym_int": {"as_name": f"n{step - 1}"}} if step else {"as_sym_int": {"as_int": 3}}
            name = f"n{step}"
            graph_types[name] = {"as_int": 3}
            inputs = [{"name": "", "arg": factor, "kind": 1}] * 2
            outputs = [{"as_sym_int": {"as_name": name}}]
            return {"target": "_operator.mul", "name": name, "inputs": inputs, "outputs": outputs, "metadata": {}}

        def edit(program: Record) -> None:
            graph = program["graph_module"]["graph"]
            ends = node("torch.ops.aten.add.Scalar", "end", self=tensor("input"))
            ends["inputs"].append({"name": "other", "arg": {"as_sym_int": {"as_name": "n63"}}, "kind": 1})
            graph["nodes"] = [*map(squared, range(64)), ends, *graph["nodes"]]
            graph["sym_int_values"] = graph_types
            graph["tensor_values"]["end"] = graph["tensor_values"]["input"]

        loaded = zoo.load(str(edited(good, tmp_path / "bad.pt2", edit)))
        with pytest.raises(CaptureError, match="a size is larger than 64 bits"):
            capture(loaded.module, loaded.inputs)

    def test_constants_take_no_memory(self, good: Path, tmp_path: Path) -> None:
        """2^40 bytes of ones would not fit; they have no data, and are never summed."""
        shape = {"as_ints": [1 << 38]}
        added = [
            node("torch.ops.aten.ones.default", "large", size=shape),
            node("torch.ops.aten.sum.default", "total", self=tensor("large")),
        ]
        loaded = zoo.load(str(with_nodes(good, tmp_path / "large.pt2", added, 1 << 38)))
        assert len(capture(loaded.module, loaded.inputs).ops) == 2


def _resized(good: Path, folder: Path, size: Record) -> Path:
    def edit(program: Record) -> None:
        program["graph_module"]["graph"]["tensor_values"]["relu"]["sizes"][0] = size

    return edited(good, folder / "resized.pt2", edit)


class Masked(nn.Module):
    """A window's mask as Swin makes it, in-place layers, and text options."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.last = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Hardswish(inplace=True), nn.Dropout(0.1), nn.GELU("tanh"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros((1, 1, 8, 8))
        mask[..., 4:] = 1.0
        mask[..., :4] -= 1.0
        x = self.first(x)
        x += self.last(x) * mask.masked_fill(mask != 0, -100.0)
        x = torch.einsum("bchw,bcij->bhwij", x, nn.functional.pad(x, (1, 1, 0, 0), mode="reflect"))
        return torch.div(x, 2, rounding_mode="floor").flatten(1).softmax(-1)


class PartlyWithoutGradients(nn.Module):
    """A module that turns gradients off for a part of its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x * 2
        return self.layer(x)


class TestHonestModels:
    def test_in_place_layers_and_masks_are_as_the_module_has_them(self, tmp_path: Path) -> None:
        module, image = Masked().eval(), torch.randn(2, 3, 8, 8)
        path = exported(tmp_path / "masked.pt2", module, image)
        assert {"torch.ops.aten.relu_.default", "torch.ops.aten.add_.Tensor"} <= _targets(path)
        loaded = zoo.load(str(path))
        expected = sorted(op.op for op in capture(module, (image,)).ops)
        assert sorted(op.op for op in capture(loaded.module, loaded.inputs).ops) == expected

    @pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own use
    def test_decomposed_programs_are_accepted(self, tmp_path: Path) -> None:
        program = torch.export.export(Masked().eval(), (torch.randn(2, 3, 8, 8),)).run_decompositions()
        torch.export.save(program, tmp_path / "core.pt2")
        loaded = zoo.load(str(tmp_path / "core.pt2"))
        assert capture(loaded.module, loaded.inputs).ops

    def test_a_part_without_gradients_is_accepted(self, tmp_path: Path) -> None:
        path = exported(tmp_path / "partly.pt2", PartlyWithoutGradients(), torch.randn(2, 4))
        assert "torch.ops.higher_order.wrap_with_set_grad_enabled" in _targets(path)
        loaded = zoo.load(str(path))
        assert capture(loaded.module, loaded.inputs).ops


def _targets(path: Path) -> set[str]:
    found: set[str] = set()
    edited(path, path.with_suffix(".copy"), lambda program: found.update(one["target"] for one in nodes_of(program)))
    return found
