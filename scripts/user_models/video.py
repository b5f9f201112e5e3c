"""Networks over time as users write them: video, text lines, frame features."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class ConvLSTMCell(nn.Module):
    """Gates by one convolution of input and state."""

    def __init__(self, inp: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2d(inp + hidden, 4 * hidden, 3, padding=1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        h, c = state
        i, f, o, g = self.conv(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class ConvLSTM(nn.Module):
    """Next-frame prediction: an encoder, a recurrent cell over eight frames, a decoder."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 3, 2, 1), nn.LeakyReLU(0.2)
        )
        self.cell = ConvLSTMCell(64, hidden)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(hidden, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.ConvTranspose2d(32, 1, 4, 2, 1)
        )

    def forward(self, clip: Tensor) -> Tensor:
        """The next frame of a clip, (n, frames, 1, h, w)."""
        n, t, _, height, width = clip.shape
        h = clip.new_zeros(n, self.cell.hidden, height // 4, width // 4)
        c = torch.zeros_like(h)
        for step in range(t):
            h, c = self.cell(self.enc(clip[:, step]), (h, c))
        return self.dec(h).sigmoid()


class C3D(nn.Module):
    """Plain 3x3x3 convolutions."""

    def __init__(self, classes: int = 101) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inp = 3
        for i, out in enumerate((32, 64, 128, 256)):
            pool = nn.MaxPool3d((1, 2, 2) if i == 0 else 2)
            layers += [nn.Conv3d(inp, out, 3, padding=1), nn.ReLU(inplace=True), pool]
            inp = out
        self.net, self.head = nn.Sequential(*layers), nn.Linear(inp, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a clip, (n, 3, frames, h, w)."""
        return self.head(self.net(x).mean((2, 3, 4)))


class R2Plus1D(nn.Module):
    """Spatial and temporal convolutions apart, with residuals."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, width, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False), nn.BatchNorm3d(width), nn.ReLU()
        )
        self.blocks = nn.ModuleList(self._block(width) for _ in range(3))
        self.pool, self.head = nn.AdaptiveAvgPool3d(1), nn.Linear(width, 400)

    @staticmethod
    def _block(c: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv3d(c, 2 * c, (1, 3, 3), padding=(0, 1, 1), bias=False), nn.BatchNorm3d(2 * c), nn.ReLU(),
            nn.Conv3d(2 * c, c, (3, 1, 1), padding=(1, 0, 0), bias=False), nn.BatchNorm3d(c),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a clip."""
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(self.pool(x).flatten(1))


class SlowFast(nn.Module):
    """A slow pathway of few frames and a fast one of few channels, joined by lateral convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.slow1, self.fast1 = self._stage(3, 64, 1), self._stage(3, 8, 3)
        self.lateral = nn.Conv3d(8, 16, (5, 1, 1), (4, 1, 1), (2, 0, 0))
        self.slow2, self.fast2 = self._stage(80, 128, 3), self._stage(8, 16, 3)
        self.head = nn.Linear(144, 400)

    @staticmethod
    def _stage(i: int, o: int, t: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv3d(i, o, (t, 3, 3), (1, 2, 2), (t // 2, 1, 1), bias=False), nn.BatchNorm3d(o), nn.ReLU(inplace=True),
            nn.Conv3d(o, o, (1, 3, 3), padding=(0, 1, 1), bias=False), nn.BatchNorm3d(o), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, clip: Tensor) -> Tensor:
        """Logits of a clip of 16 frames."""
        slow, fast = self.slow1(clip[:, :, ::4]), self.fast1(clip)
        slow = torch.cat([slow, self.lateral(fast)], 1)
        slow, fast = self.slow2(slow), self.fast2(fast)
        return self.head(torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1))


class CRNN(nn.Module):
    """Convolutions squeeze a text line to a sequence; two bidirectional LSTMs read it."""

    def __init__(self, letters: int = 80) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inp = 1
        for i, (out, pool) in enumerate(((64, (2, 2)), (128, (2, 2)), (256, (2, 1)), (256, (2, 1)))):
            layers += [
                nn.Conv2d(inp, out, 3, padding=1),
                nn.BatchNorm2d(out) if i > 1 else nn.Identity(),
                nn.ReLU(True),
            ]
            layers.append(nn.MaxPool2d(pool))
            inp = out
        self.cnn = nn.Sequential(*layers)
        self.rnn = nn.LSTM(512, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(512, letters)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities, (n, steps, letters)."""
        y = self.cnn(x)
        y = y.permute(0, 3, 1, 2).flatten(2)
        y, _ = self.rnn(y)
        return F.log_softmax(self.fc(y), dim=-1)


class FrameGRU(nn.Module):
    """Features of each frame, then a GRU over them."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in ((3, 32), (32, 64), (64, 128), (128, 256)):
            layers += [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
        self.cnn = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.gru, self.fc = nn.GRU(256, 256, batch_first=True), nn.Linear(256, 60)

    def forward(self, clip: Tensor) -> Tensor:
        """Logits of a clip, (n, frames, 3, h, w)."""
        n, t = clip.shape[:2]
        y, _ = self.gru(self.cnn(clip.flatten(0, 1)).view(n, t, -1))
        return self.fc(y[:, -1])


class CellLoop(nn.Module):
    """nn.GRUCell called in a Python loop over columns."""

    def __init__(self, steps: int = 12) -> None:
        super().__init__()
        self.conv, self.cell, self.fc = nn.Conv2d(3, 128, 16, 16), nn.GRUCell(128, 128), nn.Linear(128, 10)
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        columns = self.conv(x).mean(2)
        h = columns.new_zeros(x.shape[0], 128)
        for step in range(self.steps):
            h = self.cell(columns[:, :, step], h)
        return self.fc(h)


def conv_lstm(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Convolutional LSTM over eight frames."""
    return ConvLSTM().eval(), torch.randn(batch, 8, 1, 64, 64)


def c3d(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """3-D convolutions."""
    return C3D().eval(), torch.randn(batch, 3, 16, 112, 112)


def r2plus1d(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Factored 3-D convolutions."""
    return R2Plus1D().eval(), torch.randn(batch, 3, 8, 112, 112)


def slow_fast(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Two pathways."""
    return SlowFast().eval(), torch.randn(batch, 3, 16, 112, 112)


def crnn(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Text recognition."""
    return CRNN().eval(), torch.randn(batch, 1, 32, 160)


def frame_gru(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """GRU over frames."""
    return FrameGRU().eval(), torch.randn(batch, 8, 3, 112, 112)


def cell_loop(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """GRU cell in a loop."""
    return CellLoop().eval(), torch.randn(batch, 3, 192, 192)
