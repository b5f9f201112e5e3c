"""Which measurements a family's predictor may see, and which family a model is of."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel import evaluate
from costmodel.evaluate import Measured, Origin, family_of
from costmodel.train import Settings, Table


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("resnet50", "resnet"),
        ("timm:seresnext26d_32x4d", "resnet"),
        ("tv:wide_resnet50_2", "resnet"),
        ("timm:inception_resnet_v2", "inception"),
        ("timm:repvgg_a2", "vgg"),
        ("timm:tf_efficientnetv2_b0", "mobilenet"),
        ("efficientnet_v2_s", "mobilenet"),
        ("timm:haloregnetz_b", "regnet"),
        ("vit_b_16", "vit"),
        ("timm:levit_128s", "levit"),
        ("timm:convmixer_768_32", "convmixer"),
        ("timm:mobilevitv2_050", "mobilevit"),
        ("timm:dpn92", "dpn"),
        ("conv", "conv"),
    ],
)
def test_families(model, family):
    assert family_of(model) == family


class SeenError(Exception):
    """What was about to be trained on."""


def test_neither_the_kernels_nor_the_relatives_of_a_tested_model_are_trained_on(monkeypatch):
    def spy(table, _settings):
        raise SeenError(table.raw[:, 0].tolist())

    monkeypatch.setattr(evaluate, "fit_group", spy)
    case = Measured("resnet50", 1, "float32", "nchw", {}, {})
    origins = {"conv": [Origin(("aten", str(i)), family) for i, family in enumerate(("conv", "resnet", "vgg", "dla"))]}
    monkeypatch.setattr(evaluate, "kernel_key", lambda kernel: ("aten", kernel))
    programs = (type("P", (), {"kernels": ["3"]})(), type("P", (), {"kernels": []})())
    ones = np.ones(4)
    table = Table(("x",), np.arange(4, dtype=np.float32)[:, None], ones, ones, np.arange(4))
    with pytest.raises(SeenError) as seen:
        evaluate._predict_fold(case.fold, [case], [programs], {"conv": table}, origins, None, {}, Settings())
    assert seen.value.args[0] == [0.0, 2.0]
