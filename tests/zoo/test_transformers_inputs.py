"""Inputs that configurations of transformers ask for, by hand; the package itself is not needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from costmodel.zoo.request import Request
from costmodel.zoo.transformers_models import MOST_TOKENS, _inputs, _set_up


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({}, (2, 3, 224, 224)),
        ({"image_size": 96, "num_channels": 1}, (2, 1, 96, 96)),
        ({"in_channels": 4, "image_size": [64, 48]}, (2, 4, 48, 48)),
        ({"vision_config": SimpleNamespace(image_size=32)}, (2, 3, 32, 32)),
        ({"backbone_config": SimpleNamespace(image_size=48)}, (2, 3, 48, 48)),
        ({"num_frames": 8, "image_size": 16}, (2, 8, 3, 16, 16)),
    ],
)
def test_images_are_as_the_configuration_says(config: dict[str, object], shape: tuple[int, ...]):
    found = _inputs(SimpleNamespace(**config), Request(batch_size=2), {})
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {"pixel_values": shape}


@pytest.mark.parametrize(("length", "tokens"), [(77, 77), (MOST_TOKENS + 1, MOST_TOKENS)])
def test_tokens_are_given_to_models_that_take_them(length: int, tokens: int):
    config = SimpleNamespace(text_config=SimpleNamespace(max_position_embeddings=length))
    found = _inputs(config, Request(batch_size=2), {"input_ids": None})
    assert tuple(found["input_ids"].shape) == (2, tokens)
    assert "input_ids" not in _inputs(config, Request(), {})


def test_a_prompt_is_at_most_512_tokens():
    for length, tokens in ((511, 511), (512, 512), (513, 512), (100_000, 512)):
        config = SimpleNamespace(text_config=SimpleNamespace(max_position_embeddings=length))
        assert tuple(_inputs(config, Request(), {"input_ids": None})["input_ids"].shape) == (1, tokens)


def test_a_configuration_is_set_up_without_anything_to_download_or_to_search():
    text = SimpleNamespace(pad_token_id=1)
    config = SimpleNamespace(
        architectures=None, use_pretrained_backbone=True, pad_token_id=2, text_config=text, image_size=224
    )
    _set_up(config, Request(img_size=96))
    assert (config.use_pretrained_backbone, config.pad_token_id, text.pad_token_id) == (False, None, None)
    assert (config.architectures, config.image_size) == ([], 96)


def test_a_configuration_gets_no_field_that_it_lacks():
    config = SimpleNamespace(architectures=["Net"])
    _set_up(config, Request(img_size=96))
    assert vars(config) == {"architectures": ["Net"]}
    sized = SimpleNamespace(architectures=[], image_size=224)
    _set_up(sized, Request())
    assert sized.image_size == 224
