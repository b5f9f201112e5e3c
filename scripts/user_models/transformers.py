"""Transformers, mixers and hybrids as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention by scaled_dot_product_attention, or written out with a bias."""

    def __init__(self, dim: int, heads: int, tokens: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.zeros(heads, tokens, tokens)) if tokens else None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (n, tokens, dim)."""
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if self.bias is None:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = ((q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5 + self.bias).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(n, t, d))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, heads: int, tokens: int = 0) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, tokens)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (n, tokens, dim)."""
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class WindowStage(nn.Module):
    """Blocks on windows of 8x8, every second one shifted."""

    def __init__(self, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, heads, 64) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """A map, (n, h, w, dim), whose sides are padded to multiples of 8."""
        n, h, w, c = x.shape
        for i, block in enumerate(self.blocks):
            if i % 2:
                x = torch.roll(x, (-4, -4), (1, 2))
            pad_h, pad_w = -h % 8, -w % 8
            if pad_h or pad_w:
                x = F.pad(x, (0, 0, 0, pad_w, 0, pad_h))
            hh, ww = x.shape[1:3]
            win = x.view(n, hh // 8, 8, ww // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)
            win = block(win)
            x = win.view(n, hh // 8, ww // 8, 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(n, hh, ww, c)[:, :h, :w]
            if i % 2:
                x = torch.roll(x, (4, 4), (1, 2))
        return x


class WindowNet(nn.Module):
    """Two stages of windowed attention with patch merging between them."""

    def __init__(self, dim: int = 96, classes: int = 100) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 4, 4)
        self.s1, self.s2 = WindowStage(dim, 3, 2), WindowStage(2 * dim, 6, 4)
        self.merge = nn.Linear(4 * dim, 2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.s1(self.embed(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.s2(self.merge(x)).mean((1, 2)))


class RegisterViT(nn.Module):
    """Small vision transformer with a class token and four registers."""

    def __init__(self, dim: int = 384, depth: int = 8, classes: int = 1000) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 16, 16)
        self.cls, self.reg = nn.Parameter(torch.randn(1, 1, dim)), nn.Parameter(torch.randn(1, 4, dim))
        self.pos = nn.Parameter(torch.randn(1, 196, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, 6) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), self.reg.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.norm(self.blocks(x))[:, 0])


class Mixer(nn.Module):
    """MLP-mixer: one MLP over tokens, one over channels."""

    def __init__(self, dim: int = 256, depth: int = 8, tokens: int = 196) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * depth))
        self.token = nn.ModuleList(self._mlp(tokens, 128) for _ in range(depth))
        self.channel = nn.ModuleList(self._mlp(dim, 4 * dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1000)

    @staticmethod
    def _mlp(dim: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i, (token, channel) in enumerate(zip(self.token, self.channel, strict=True)):
            x = x + token(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channel(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


class Hybrid(nn.Module):
    """Inverted residuals first, nn.TransformerEncoder on the small map after."""

    def __init__(self, dim: int = 192) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.Hardswish())
        self.convs = nn.Sequential(self._mb(32, 64, 2), self._mb(64, 96, 2), self._mb(96, dim, 2))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.fuse, self.head = nn.Conv2d(2 * dim, dim, 3, padding=1), nn.Linear(dim, 100)

    @staticmethod
    def _mb(i: int, o: int, s: int) -> nn.Sequential:
        m = 4 * i
        return nn.Sequential(
            nn.Conv2d(i, m, 1, bias=False), nn.BatchNorm2d(m), nn.Hardswish(),
            nn.Conv2d(m, m, 3, s, 1, groups=m, bias=False), nn.BatchNorm2d(m), nn.Hardswish(),
            nn.Conv2d(m, o, 1, bias=False), nn.BatchNorm2d(o),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.convs(self.stem(x))
        n, c, h, w = x.shape
        y = self.encoder(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(n, c, h, w)
        return self.head(self.fuse(torch.cat([x, y], 1)).mean((2, 3)))


class SetDecoder(nn.Module):
    """Queries attend to a map by nn.MultiheadAttention, as in DETR."""

    def __init__(self, dim: int = 256, queries: int = 100) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, dim, 3, 4, 1), nn.ReLU())
        self.query = nn.Embedding(queries, dim)
        self.self_attn = nn.ModuleList(nn.MultiheadAttention(dim, 8, batch_first=True) for _ in range(3))
        self.cross = nn.ModuleList(nn.MultiheadAttention(dim, 8, batch_first=True) for _ in range(3))
        self.ffn = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1024), nn.ReLU(), nn.Linear(1024, dim)) for _ in range(3)
        )
        self.cls, self.box = nn.Linear(dim, 92), nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits and boxes of each query."""
        memory = self.backbone(x).flatten(2).transpose(1, 2)
        q = self.query.weight.unsqueeze(0).expand(x.shape[0], -1, -1)
        for self_attn, cross, ffn in zip(self.self_attn, self.cross, self.ffn, strict=True):
            q = q + self_attn(q, q, q, need_weights=False)[0]
            q = q + cross(q, memory, memory, need_weights=False)[0]
            q = q + ffn(q)
        return self.cls(q), self.box(q).sigmoid()


class RotaryViT(nn.Module):
    """Rotary positions by complex multiplication."""

    def __init__(self, dim: int = 256, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.heads, self.patch = heads, nn.Conv2d(3, dim, 16, 16)
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        angle = torch.outer(torch.arange(196.0), 100.0 ** -torch.linspace(0, 1, dim // heads // 2))
        self.register_buffer("rotation", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def _rotate(self, t: Tensor) -> Tensor:
        pairs = torch.view_as_complex(t.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.rotation).flatten(-2).to(t.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Mean token."""
        x = self.patch(x).flatten(2).mT
        for qkv, out in zip(self.qkv, self.out, strict=True):
            q, k, v = qkv(F.layer_norm(x, x.shape[-1:])).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(self._rotate(q), self._rotate(k), v)
            x = x + out(y.transpose(1, 2).flatten(2))
        return x.mean(1)


def window_net(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Windowed attention."""
    return WindowNet().eval(), torch.randn(batch, 3, 224, 224)


def register_vit(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Small ViT with registers."""
    return RegisterViT().eval(), torch.randn(batch, 3, 224, 224)


def mixer(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """MLP-mixer."""
    return Mixer().eval(), torch.randn(batch, 3, 224, 224)


def hybrid(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Convolutions, then a transformer encoder."""
    return Hybrid().eval(), torch.randn(batch, 3, 224, 224)


def set_decoder(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Object queries that attend to a map."""
    return SetDecoder().eval(), torch.randn(batch, 3, 384, 384)


def rotary_vit(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """ViT with complex rotary embeddings."""
    return RotaryViT().eval(), torch.randn(batch, 3, 224, 224)


def register_vit_bfloat16(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """The same ViT in bfloat16."""
    return RegisterViT(depth=6).bfloat16().eval(), torch.randn(batch, 3, 224, 224, dtype=torch.bfloat16)


def token_mlp_bfloat16(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Wide layers with norms on many tokens, in bfloat16."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.LayerNorm(2048), nn.GELU())]
    return nn.Sequential(*layers).bfloat16().eval(), torch.randn(batch * 128, 2048, dtype=torch.bfloat16)
