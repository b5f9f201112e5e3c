"""Random modules for the fuzz tests: branches, shared submodules, views, writes in place, dead code, many results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

SHAPE = (2, 4, 6, 6)
NUMBERS = (0.5, 1.0, -1.0, 2.0, 0.0, 3.0)
Tensor = torch.Tensor
Step = Callable[["RandomModule", Tensor, Tensor], Tensor]
"""Function of two tensors of one shape: returns a third, or the first written in place."""


def written_slice(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a[:, 1:3] = b[:, :2]
    return a


def written_view(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a.view(2, 4, 36)[:, :, 5].mul_(2.0)
    return a + b


def written_transpose(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a.transpose(2, 3).add_(b)
    return a


def written_overlapping(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a[:, :3].add_(1.0)
    a[:, 1:].mul_(b[:, 1:])
    return a


def view_read_after_write(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    view = a[:, :, 1:4]
    a.sub_(b)
    return a + view.sum(2, keepdim=True)


def base_read_after_write(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    first, second = a.chunk(2, 1)
    second += first
    return a.tanh() * b


def copied_into(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    made = torch.empty_like(a)
    made[..., ::2].copy_(a[..., 1::2])
    made[..., 1::2] = b[..., :3]
    return made


def result_given(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    made = torch.zeros_like(a)
    torch.add(a, b, out=made)
    return made


def turned_in_place(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    made = a + b
    made.transpose_(2, 3)
    made.unsqueeze_(0)
    made.squeeze_(0)
    return made.contiguous()


def wider_in_place(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a += b.double()
    half = b.half()
    half *= a
    return a - half


def several_in_place(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    torch._foreach_mul_([a, b], [2.0, 0.5])
    return a + b


def bits_in_place(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    parts = torch.view_as_complex(b.view(2, 4, 6, 3, 2))
    parts[:, 1:].mul_(2j)
    return a * b


def picked_in_place(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    turned = a.permute(0, 2, 3, 1)
    turned[0, [1, 2]] = b[0, :, 2:4].permute(1, 2, 0)
    turned[1].clamp_(-0.5, 0.5).transpose(0, 1).masked_fill_(b[0, 0, :, :, None] > 0, 1.0)
    return a


def larger_of(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    values, places = a.new_empty(2, 4, 6, 1), a.new_empty(2, 4, 6, 1, dtype=torch.int64)
    torch.max(a, 3, keepdim=True, out=(values, places))
    return b - values


def dead_write(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    unread = a.clone()
    unread[:, 0] = b[:, 0].exp()
    return a


def masked(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    table = torch.ones(6)
    table[1:3] = 0.0
    return a * table + b


def largest(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    values, places = a.max(3, keepdim=True)
    return b * values + places


def last_of_several(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    _, _, third = b.split([1, 2, 1], 1)
    return a + third


def sorted_places(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    return b + a.sort(1)[1]


def attention(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    mixed = nn.functional.scaled_dot_product_attention(a, b, b)
    mixed[:, 1:3] *= 2.0
    return mixed.contiguous()


def picked(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a.masked_fill_(b > 0.5, 0.25)
    return a[:, [3, 0, 0, 1]]


def put(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    a[:, [0, 2]] = b[:, torch.arange(3, -1, -2)]
    return a


def numbers(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    here, there = torch.tensor(NUMBERS), torch.tensor(NUMBERS, device=a.device)
    return a * here + b * there


def written_numbers(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    here, there = torch.tensor(NUMBERS), torch.tensor(NUMBERS, device=a.device)
    here.add_(1.0)
    there[2:].mul_(3.0)
    return a * here + b * there


def recurrent(m: RandomModule, a: Tensor, b: Tensor) -> Tensor:
    return b + m.lstm(a.flatten(0, 1))[0].view(SHAPE)


STEPS: Mapping[str, Step] = {
    "relu": lambda m, a, b: torch.relu(a),
    "relu in place": lambda m, a, b: torch.relu_(a),
    "sum": lambda m, a, b: a + b,
    "difference": lambda m, a, b: b - a,
    "product in place": lambda m, a, b: a.mul_(b.sigmoid()),
    "dead": lambda m, a, b: (torch.exp(b), a)[1],
    "dead write": dead_write,
    "convolution": lambda m, a, b: m.conv(a),
    "convolution twice": lambda m, a, b: m.conv(torch.relu(m.conv(a))) + m.conv(b),
    "block": lambda m, a, b: torch.relu(m.norm(m.conv(a)) + b),
    "tied": lambda m, a, b: m.tied(m.fc(a)) + b,
    "siblings": lambda m, a, b: torch.cat([torch.relu(m.left(a)), torch.relu(m.right(a))], 1) + b,
    "grouped": lambda m, a, b: m.norm(m.grouped(a)),
    "flat": lambda m, a, b: m.fc(a.flatten(2).view(2, 4, 6, 6)) + b,
    "permuted": lambda m, a, b: a.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "channels last": lambda m, a, b: m.conv(a.contiguous(memory_format=torch.channels_last)),
    "joined": lambda m, a, b: torch.cat([a, b], 1)[:, 2:6],
    "stacked": lambda m, a, b: torch.stack([a, b], 4).amax(4),
    "halves": lambda m, a, b: torch.cat(a.chunk(2, 1)[::-1], 1),
    "mean": lambda m, a, b: a - b.mean((2, 3), keepdim=True),
    "pool": lambda m, a, b: nn.functional.max_pool2d(a, 3, 1, 1),
    "resized": lambda m, a, b: nn.functional.interpolate(nn.functional.avg_pool2d(a, 2), size=(6, 6)) - b,
    "expanded": lambda m, a, b: a + b[:, :1].expand(SHAPE),
    "normal": lambda m, a, b: nn.functional.layer_norm(a, (6,)).softmax(1),
    "product": lambda m, a, b: a @ b.transpose(2, 3),
    "attention": attention,
    "recurrent": recurrent,
    "rounded": lambda m, a, b: a.to(torch.float64).add(1.0).float() + (b > 0),
    "largest": largest,
    "last of several": last_of_several,
    "sorted places": sorted_places,
    "picked": picked,
    "put": put,
    "numbers": numbers,
    "written numbers": written_numbers,
    "attribute": lambda m, a, b: a * m.table - b,
    "copied into": copied_into,
    "result given": result_given,
    "turned in place": turned_in_place,
    "wider in place": wider_in_place,
    "several in place": several_in_place,
    "picked in place": picked_in_place,
    "bits in place": bits_in_place,
    "larger of": larger_of,
    "written slice": written_slice,
    "written view": written_view,
    "written transpose": written_transpose,
    "written overlapping": written_overlapping,
    "view read after write": view_read_after_write,
    "base read after write": base_read_after_write,
    "masked": masked,
    "without a rule": lambda m, a, b: a + torch.lgamma(b.abs() + 1.0),
}


@dataclass(frozen=True)
class Program:
    """A random module in words.

    Attributes:
        steps: what is done in turn, and to which two of the tensors known by then.
        inputs: how many tensors the module takes.
        returned: which of the known tensors it returns, how nested.
    """

    steps: tuple[tuple[str, int, int], ...]
    inputs: int
    returned: str


RETURNED: Mapping[str, Callable[[list[Tensor]], Any]] = {
    "one": lambda known: known[-1],
    "two": lambda known: (known[-1], known[len(known) // 2]),
    "dict": lambda known: {"last": known[-1], "rest": (known[len(known) // 2], known[0])},
    "repeated": lambda known: [known[-1], known[0], known[-1]],
    "view": lambda known: (known[-1][:, 1:3], known[-1].transpose(1, 2)),
}


class RandomModule(nn.Module):
    """Does the steps of a program on a growing list of tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.conv, self.grouped = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1, groups=2, bias=False)
        self.norm, self.fc, self.tied = nn.BatchNorm2d(4), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.tied.weight = self.fc.weight
        self.left, self.right = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 1, 1)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.table = torch.tensor(NUMBERS)
        self.norm.running_mean.uniform_(-0.1, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        known = [x * 1.0, x + 1.0 if y is None else y - 0.5]
        for name, first, second in self.program.steps:
            a, b = known[first % len(known)], known[second % len(known)]
            made = STEPS[name](self, a, b.clone() if b is a else b)
            known.append(made)
        return RETURNED[self.program.returned](known)


programs = st.builds(
    Program,
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=8).map(
        tuple
    ),
    inputs=st.integers(1, 2),
    returned=st.sampled_from(sorted(RETURNED)),
)


def made(program: Program) -> tuple[RandomModule, tuple[Tensor, ...]]:
    """The module with weights, and inputs for it."""
    torch.manual_seed(0)
    return RandomModule(program).eval(), tuple(torch.randn(SHAPE) for _ in range(program.inputs))
