"""A siamese network: two images by keyword, one backbone called twice."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Siamese(nn.Module):
    """Cosine similarity of two embeddings, and the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 64, 3, stride=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """Of two batches of images."""
        first, second = self.backbone(left), self.backbone(right)
        return {"similarity": functional.cosine_similarity(first, second), "left": first, "right": second}


def batch_1() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """One pair."""
    return Siamese(), {"left": torch.zeros(1, 3, 128, 128), "right": torch.zeros(1, 3, 128, 128)}


def batch_32() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """32 pairs."""
    return Siamese(), {"left": torch.zeros(32, 3, 128, 128), "right": torch.zeros(32, 3, 128, 128)}
