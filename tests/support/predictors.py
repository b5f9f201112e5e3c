"""A predictor small enough to check by hand, for tests of its arithmetic and of its file."""

from __future__ import annotations

import numpy as np

from collectors.workloads.convolution_space import ConvUnit, unit_graph
from costmodel.features import Roofline, featurize
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.group_model import GroupModel
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.network import Array, NeuralNetwork, scaled
from costmodel.predictor.predictor import Predictor
from costmodel.predictor.recall import Recall, key_hash
from costmodel.predictor.trees import LEAF, Trees

ROOFLINE = Roofline(4e6, {"conv.float32": 2e8, "matmul.float32": 4e7}, 1.5)


def conv(channels: int, size: int = 14) -> Kernel:
    return eager_kernels(unit_graph(ConvUnit(8, channels, channels, size, activation=False), "nchw", "nchw"))[0]


KERNELS = [conv(channels) for channels in (8, 16, 24, 32, 48, 64, 96, 128)]
POSITIONS = [0.5] * len(KERNELS)
MEASURED_US = np.linspace(2.0, 9.0, len(KERNELS), dtype=np.float32)
"""Measured times of KERNELS."""


def small_predictor() -> Predictor:
    """Two small random networks for convolutions, with eight measured kernels."""
    rng = np.random.default_rng(0)
    features = [featurize(kernel, ROOFLINE, 132) for kernel in KERNELS]
    names = tuple(features[0])
    raw = np.array([[named[name] for name in names] for named in features], dtype=np.float32)
    mean = raw.mean(0)
    scale = np.where(raw.std(0) > 1e-6, raw.std(0), 1.0).astype(np.float32)
    width = len(names)

    def layer(*shape: int) -> Array:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    networks = tuple(NeuralNetwork((layer(width, 6), layer(6, 1)), (layer(6), layer(1))) for _ in range(2))
    model = GroupModel(
        names=names,
        mean=mean,
        scale=scale,
        networks=networks,
        sample=in_steps(scaled(raw, mean, scale)),
        residual=np.linspace(-0.2, 0.2, len(raw), dtype=np.float32),
        recall=recall_of(MEASURED_US),
        reach=0.5,
        edges=np.array([4.0, 40.0], dtype=np.float32),
        widths=np.array([0.3, 0.2, 0.1], dtype=np.float32),
        far=1.0,
    )
    return Predictor({"conv": model}, ROOFLINE, 132)


def recall_of(us: Array, host_us: Array | None = None, workspace_bytes: Array | None = None) -> Recall:
    """Recall of KERNELS."""
    hashes = np.array([key_hash(kernel.key) for kernel in KERNELS], dtype=np.int64)
    return Recall.of(hashes, us, host_us, workspace_bytes)


def one_leaf(value: float) -> Trees:
    """Trees that predict one value for every row."""
    return Trees(1, np.array([LEAF], np.int8), np.zeros(1, np.int16), unit=1.0, base=value)
