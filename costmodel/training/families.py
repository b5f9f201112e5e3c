"""Model families, which are held out together, and the folds that they are assigned to."""

from __future__ import annotations

import hashlib
import re

FOLDS = 8
"""Number of folds of cross-validation."""
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
"""Patterns of model names and their families; the first match counts.

Other families are named after the first letters of the model's name, without a version number."""


def fold_of(family: str) -> int:
    """Fold of a family, by a hash of its name."""
    return int(hashlib.sha256(family.encode()).hexdigest(), 16) % FOLDS


def family_of(model: str) -> str:
    """Family of a model by its name, with or without its library: `resnet` for `timm:seresnet50`."""
    name = model.rpartition(":")[2].lower()
    named = (family for pattern, family in FAMILIES if re.search(pattern, name))
    letters = re.match(r"[a-z]*?(?=v?\d|[^a-z]|$)", name)
    return next(named, letters[0] if letters else "")
