"""Requests for models: bounds of sizes, images, and suggestions."""

from __future__ import annotations

import pytest
import torch

from costmodel.errors import RequestError
from costmodel.zoo.request import Request, did_you_mean


@pytest.mark.parametrize(
    ("inside", "outside", "said"),
    [
        ({"batch_size": 1}, {"batch_size": 0}, "impossible batch size 0; it must be from 1 to 1048576"),
        ({"batch_size": 1 << 20}, {"batch_size": (1 << 20) + 1}, "impossible batch size 1048577; .*"),
        ({"img_size": 1}, {"img_size": 0}, "impossible image size 0; it must be from 1 to 32768"),
        ({"img_size": 1 << 15}, {"img_size": (1 << 15) + 1}, "impossible image size 32769; .*"),
        (
            {"precision": "bfloat16"},
            {"precision": "float64"},
            "unknown precision 'float64'; choose one of float32, float16, bfloat16",
        ),
    ],
)
def test_sizes_have_bounds_and_precisions_names(inside: dict[str, object], outside: dict[str, object], said: str):
    request = Request(**inside)  # type: ignore[arg-type]
    assert request.check() is request
    with pytest.raises(RequestError, match=f"^{said}$"):
        Request(**outside).check()  # type: ignore[arg-type]


def test_a_precision_is_a_dtype_of_torch():
    assert Request().dtype is None
    assert Request(precision="float16").dtype is torch.float16


@pytest.mark.parametrize(
    ("request_", "options", "shape"),
    [
        (Request(), {}, (1, 3, 224, 224)),
        (Request(), {"size": 96, "channels": 1}, (1, 1, 96, 96)),
        (Request(batch_size=4, img_size=64), {"size": 96}, (4, 3, 64, 64)),
        (Request(batch_size=2), {"frames": 8, "size": 32}, (2, 3, 8, 32, 32)),
        (Request(), {"frames": 1}, (1, 3, 1, 224, 224)),
    ],
)
def test_an_image_is_of_the_requested_size_else_of_the_models(
    request_: Request, options: dict[str, int], shape: tuple[int, ...]
):
    image = request_.image(**options)
    assert tuple(image.shape) == shape
    assert image.is_meta


@pytest.mark.parametrize(("request_", "fits"), [(Request(), True), (Request(1), False), (Request(img_size=8), False)])
def test_a_model_with_inputs_of_its_own_takes_no_sizes(request_: Request, fits: bool):
    if fits:
        request_.fixed_inputs("net.pt2")
        Request(precision="float16", channels_last=True).fixed_inputs("net.pt2")
        return
    said = "^net.pt2 brings its own inputs; leave out the batch size and the image size, or have its function take "
    with pytest.raises(RequestError, match=said):
        request_.fixed_inputs("net.pt2")


@pytest.mark.parametrize(
    ("function", "request_", "taken"),
    [
        (lambda: None, Request(8, 64), {}),
        (lambda batch_size=2: None, Request(8, 64), {"batch_size": 8}),
        (lambda batch_size=2: None, Request(), {}),
        (lambda batch_size, img_size: None, Request(img_size=64), {"batch_size": 1, "img_size": 64}),
        (lambda img_size: None, Request(8), {"img_size": 224}),
        (lambda **options: None, Request(8, 64), {}),
        (max, Request(8), {}),
    ],
)
def test_functions_get_the_sizes_that_they_have_parameters_for(function: object, request_: Request, taken: dict):
    assert request_.taken_by(function) == taken


def test_sizes_that_a_function_has_taken_are_not_refused():
    Request(8).fixed_inputs("net.py:build", {"batch_size": 8})
    with pytest.raises(RequestError, match="brings its own inputs"):
        Request(8, 64).fixed_inputs("net.py:build", {"batch_size": 8})


def test_similar_names_are_suggested_and_at_most_three():
    assert did_you_mean("resnet5", ["resnet50", "vgg16"]) == "; did you mean resnet50?"
    assert did_you_mean("zzz", ["resnet50"]) == ""
    assert did_you_mean("aaab", ["aaac", "aaad", "aaae", "aaaf"]).count(",") == 2
