"""Model families, which are held out together, and the folds that they are assigned to."""

from __future__ import annotations

import hashlib
import re

FOLDS = 8
"""Into how many parts datasets are cut, each predicted by what was learnt from the others."""
FAMILIES = (
    (r"inception|xception|googlenet", "inception"),
    (r"vgg", "vgg"),
    (r"botnet|halonet|res2ne|resne", "resnet"),
    (r"squeezenet", "squeezenet"),
    (r"densenet|rdnet", "densenet"),
    (r"mobilenet|m?nasnet|hardcorenas|fbnet|ghost|mixnet|rexnet|efficientnet|tinynet|lcnet", "mobilenet"),
    (r"regnet", "regnet"),
    (r"^(vit|deit|cait|beit|eva)", "vit"),
    (r"^(mixer|gmlp|resmlp)", "mlp"),
    (r"mobilevit", "mobilevit"),
    (r"efficientformer", "efficientformer"),
    (r"convnext", "convnext"),
    (r"darknet", "darknet"),
    (r"nfnet", "nfnet"),
    (r"vovnet", "vovnet"),
    (r"^dla", "dla"),
)
"""What a model's name contains -> its family, the first that fits; any other is named after its first letters, without
the number of a version."""


def fold_of(family: str) -> int:
    """The fold that a family falls into, by a hash of its name."""
    return int(hashlib.sha256(family.encode()).hexdigest(), 16) % FOLDS


def family_of(model: str) -> str:
    """The family of a model by its name, with or without its library: `timm:seresnet50` is a `resnet`."""
    name = model.rpartition(":")[2].lower()
    named = (family for pattern, family in FAMILIES if re.search(pattern, name))
    letters = re.match(r"[a-z]*?(?=v?\d|[^a-z]|$)", name)
    return next(named, letters[0] if letters else "")
