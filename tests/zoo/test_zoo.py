"""Model specs: what they build, and one line for each that names no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel import zoo
from costmodel.errors import RequestError, UnknownModelError
from costmodel.zoo.build import skipped_initialisation

NET = """
import torch
from torch import nn

print("noise on standard output")

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

def pair():
    return nn.Linear(5, 6), torch.zeros(7, 5)

def named():
    return Net(), {"x": torch.zeros(1, 3, 8, 8), "ids": torch.zeros(1, dtype=torch.int64)}

def without_tensors():
    return Net(), {"x": 3}

def reads_values():
    return nn.Conv2d(3, int(torch.tensor([8]).sum()), 3)

def boom():
    raise ValueError("the user's own\\nwords")

def leaves():
    raise SystemExit(3)

def needs(width):
    return nn.Linear(width, width)

def wrong():
    return 3

class Net(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 8, 3)

instance = build()
number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "usernet.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "usernet", raising=False)
    return tmp_path


def one_line(spec: str, kind: type[RequestError] = RequestError, **options: object) -> str:
    with pytest.raises(kind) as caught:
        zoo.load(spec, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestTorchvision:
    @pytest.mark.parametrize(
        ("name", "shape"),
        [
            ("alexnet", (1, 3, 224, 224)),
            ("densenet121", (1, 3, 224, 224)),
            ("googlenet", (1, 3, 224, 224)),
            ("inception_v3", (1, 3, 299, 299)),
            ("regnet_x_400mf", (1, 3, 224, 224)),  # its constructor reads values, which a meta tensor does not have
            ("vit_h_14", (1, 3, 518, 518)),
            ("swin_v2_t", (1, 3, 256, 256)),
            ("r3d_18", (1, 3, 16, 112, 112)),
            ("fcn_resnet50", (1, 3, 520, 520)),
        ],
    )
    def test_builds_on_meta_at_its_own_size_and_runs_there(self, name: str, shape: tuple[int, ...]) -> None:
        loaded = zoo.load(name)
        assert [tuple(tensor.shape) for tensor in loaded.inputs] == [shape]
        assert loaded.name == name
        assert not loaded.module.training
        tensors = [*loaded.module.parameters(), *loaded.module.buffers(), *loaded.inputs]
        assert {tensor.device.type for tensor in tensors} == {"meta"}
        with torch.no_grad():
            loaded.module(*loaded.inputs)

    def test_has_the_published_number_of_parameters(self) -> None:
        # torchvision's documentation: 7,978,856 for densenet121
        assert sum(tensor.numel() for tensor in zoo.load("densenet121").module.parameters()) == 7_978_856

    def test_batch_size_and_image_size(self) -> None:
        assert zoo.load("resnet18", batch_size=5, img_size=97).inputs[0].shape == (5, 3, 97, 97)

    def test_a_transformer_is_built_for_the_image_size(self) -> None:
        loaded = zoo.load("vit_b_16", img_size=64)
        assert loaded.module(*loaded.inputs).shape == (1, 1000)
        assert loaded.module.encoder.pos_embedding.shape[1] == 17  # type: ignore[union-attr, index] # (64/16)^2 + 1

    def test_names_ignore_case_and_near_ones_are_suggested(self) -> None:
        assert zoo.load("ResNet18").name == "ResNet18"
        assert "did you mean densenet121" in one_line("densnet121", UnknownModelError)

    def test_a_detector_takes_a_list_of_images_of_the_size_that_it_scales_to(self) -> None:
        (images,) = zoo.load("ssdlite320_mobilenet_v3_large", batch_size=2).inputs
        assert [tuple(image.shape) for image in images] == [(3, 320, 320), (3, 320, 320)]
        (images,) = zoo.load("retinanet_resnet50_fpn", img_size=64).inputs
        assert [tuple(image.shape) for image in images] == [(3, 64, 64)]

    def test_an_image_size_that_the_model_cannot_have(self) -> None:
        assert "vit_b_16 cannot be built for image size 50" in one_line("vit_b_16", img_size=50)

    def test_survives_operators_that_do_not_load(self) -> None:
        # a torchvision whose library is missing fails on import as one built for another torch does
        code = (
            "import sys, torch; load = torch.ops.load_library\n"
            "def fail(path):\n"
            "    if 'torchvision' in str(path): raise OSError('undefined symbol')\n"
            "    return load(path)\n"
            "torch.ops.load_library = fail\n"
            "from costmodel import zoo; assert 'torchvision' not in sys.modules\n"
            "print(zoo.load_torchvision() is zoo.load_torchvision(), zoo.load('alexnet').inputs[0].shape[0])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["True", "1"], done.stderr


class TestPrecisionAndLayout:
    @pytest.mark.parametrize("precision", ["float16", "bfloat16", "float32"])
    def test_of_parameters_and_inputs(self, precision: str) -> None:
        loaded = zoo.load("alexnet", precision=precision)
        assert {tensor.dtype for tensor in [*loaded.module.parameters(), *loaded.inputs]} == {getattr(torch, precision)}

    def test_channels_last(self) -> None:
        loaded = zoo.load("alexnet", channels_last=True)
        weight = loaded.module.get_parameter("features.3.weight")  # [192, 64, 5, 5]: the channel's stride is 1
        assert weight.stride() == (1600, 1, 320, 64)
        assert loaded.inputs[0].stride() == (150528, 1, 672, 3)


@pytest.mark.parametrize(
    "options",
    [
        *({"batch_size": value} for value in (0, -1, 10**9)),
        *({"img_size": value} for value in (0, -1, 10**9)),
        {"precision": "float8"},
    ],
)
def test_absurd_requests_are_refused(options: dict[str, object]) -> None:
    message = one_line("alexnet", **options)
    assert str(next(iter(options.values()))) in message


def test_initialisation_is_skipped_and_restored() -> None:
    before = nn.init.ones_
    with skipped_initialisation():
        tensor = torch.zeros(3)
        assert nn.init.ones_(tensor) is tensor
        assert tensor.sum() == 0
    assert nn.init.ones_ is before
    assert nn.init.ones_(torch.zeros(3)).sum() == 3


class TestUserCode:
    @pytest.mark.parametrize(
        "spec",
        ["usernet.py:build", "usernet:build", "usernet.py:Net", "usernet.py:instance", "usernet.py:reads_values"],
    )
    def test_a_module_is_given_images(self, here: Path, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
        loaded = zoo.load(spec, batch_size=2, img_size=10)
        assert loaded.module(*loaded.inputs).shape[2:] == (8, 8)  # 10 - 3 + 1
        assert {tensor.device.type for tensor in loaded.module.parameters()} == {"meta"}
        assert capsys.readouterr().out == ""  # standard output is for results

    def test_an_absolute_path(self, here: Path) -> None:
        assert zoo.load(f"{here}/usernet.py:build").inputs[0].shape == (1, 3, 224, 224)

    def test_a_file_finds_its_neighbours_and_leaves_the_path_as_it_was(self, here: Path) -> None:
        (here / "sub").mkdir()
        (here / "sub" / "neighbour.py").write_text("from torch import nn\n")
        (here / "sub" / "net.py").write_text("from neighbour import nn\ndef build(): return nn.Conv2d(3, 4, 1)\n")
        before = list(sys.path)
        assert isinstance(zoo.load("sub/net.py:build").module, nn.Conv2d)
        assert sys.path == before

    def test_it_may_bring_inputs_by_name(self, here: Path) -> None:
        loaded = zoo.load("usernet.py:named", precision="float16")
        assert {key: value.dtype for key, value in loaded.inputs.items()} == {"x": torch.float16, "ids": torch.int64}
        assert {value.device.type for value in loaded.inputs.values()} == {"meta"}

    def test_it_may_bring_its_inputs(self, here: Path) -> None:
        loaded = zoo.load("usernet.py:pair", precision="float16")
        assert loaded.inputs[0].shape == (7, 5)
        assert loaded.inputs[0].dtype is torch.float16
        assert "brings its own inputs" in one_line("usernet.py:pair", batch_size=2)

    def test_its_function_may_take_the_sizes(self, here: Path) -> None:
        (here / "sized.py").write_text(
            "import torch\ndef build(batch_size, img_size=32):\n"
            "    return torch.nn.Conv2d(3, 4, 1), torch.ones(batch_size, 3, img_size, img_size)\n"
        )
        assert zoo.load("sized.py:build").inputs[0].shape == (1, 3, 32, 32)
        assert zoo.load("sized.py:build", batch_size=5, img_size=16).inputs[0].shape == (5, 3, 16, 16)

    @pytest.mark.parametrize(
        ("spec", "parts"),
        [
            ("absent.py:build", ["no file absent.py"]),
            ("usernet.py:biuld", ["usernet.py has no 'biuld'", "did you mean build"]),
            ("usernet.py:boom", ["usernet.py:boom raised ValueError: the user's own words", "usernet.py:23"]),
            ("usernet.py:leaves", ["usernet.py:leaves raised SystemExit: 3"]),
            ("usernet.py:needs", ["usernet.py:needs raised TypeError", "'width'"]),
            ("usernet.py:wrong", ["returned int", "nn.Module"]),
            ("usernet.py:without_tensors", ["without_tensors returned inputs without a tensor"]),
            ("usernet.py:number", ["usernet.py:number is of type int"]),
            ("usernet.py", ["usernet.py:CALLABLE"]),
            ("absent_package.part:build", ["no module 'absent_package'"]),
            ("usernet.part:build", ["no module 'usernet.part'"]),
            ("weights.pth", ["weights.pth holds weights"]),
        ],
    )
    def test_says_which_part_failed(self, here: Path, spec: str, parts: list[str]) -> None:
        message = one_line(spec)
        assert all(part in message for part in parts), message

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("raise OSError('too early')", "OSError: too early"),
            ("def build(:", "SyntaxError: invalid syntax"),
            ("import absent_dependency", "ModuleNotFoundError: No module named 'absent_dependency'"),
            ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ],
    )
    @pytest.mark.parametrize("spec", ["broken_{}.py:build", "broken_{}:build"])
    def test_an_error_while_loading_keeps_its_words(self, here: Path, text: str, said: str, spec: str) -> None:
        number = abs(hash((text, spec)))
        (here / f"broken_{number}.py").write_text(text)
        message = one_line(spec.format(number))
        assert said in message
        assert f"broken_{number}" in message


class TestTimm:
    @pytest.fixture(autouse=True)
    def _needs_timm(self) -> None:
        zoo.load_torchvision()
        pytest.importorskip("timm")

    def test_builds_at_its_own_size(self) -> None:
        assert zoo.load("timm:resnet18").inputs[0].shape == (1, 3, 224, 224)
        assert zoo.load("timm:inception_v4.tf_in1k", batch_size=3).inputs[0].shape == (3, 3, 299, 299)

    def test_image_size(self) -> None:
        loaded = zoo.load("timm:vit_tiny_patch16_224", img_size=64)
        assert loaded.module(*loaded.inputs).shape == (1, 1000)

    def test_unknown_names(self) -> None:
        assert "did you mean resnet18" in one_line("timm:resnet188", UnknownModelError)
        assert "no_such_tag" in one_line("timm:resnet18.no_such_tag")


def test_transformers_is_optional() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        assert "costmodel[hf]" in one_line("hf:vit")
    else:
        assert zoo.load("hf:vit").inputs["pixel_values"].shape == (1, 3, 224, 224)
        assert "did you mean" in one_line("hf:vitt", UnknownModelError)
        assert "not images" in one_line("hf:bert")
