"""Forward passes as users write them, each as a function of a module with layers `one` and `two` and of its input."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class UserModule(nn.Module):
    """Two layers, and what the passes below use beside them."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.symbolic = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.noisy = nn.Linear(8, 8)
        self.noisy.register_forward_hook(lambda *_: print("called"))
        self.doubled = nn.Linear(8, 8)
        self.doubled.register_forward_pre_hook(lambda _, given: (given[0] * 2,))
        self.lstm, self.cell = nn.LSTM(8, 8), nn.LSTMCell(8, 8)
        self.register_buffer("sizes", torch.tensor([2, 2]))
        self.activation = functools.partial(functional.leaky_relu, negative_slope=0.2)
        self.reference = weakref.ref(self.one)
        self.cache: dict[Any, torch.Tensor] = {}
        self.calls, self.seconds = 0, 0.0
        self.steps = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.steps(self, x)


@dataclasses.dataclass
class Result:
    first: torch.Tensor
    second: torch.Tensor


Pair = collections.namedtuple("Pair", "first second")  # noqa: PYI024 - as users write it


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient * ctx.saved_tensors[0]


@contextlib.contextmanager
def stage(name: str) -> Iterator[str]:
    yield name


@functools.cache
def places(count: int) -> torch.Tensor:
    return torch.arange(count).float()


def generator(module: Any, x: torch.Tensor) -> Any:
    def parts() -> Iterator[torch.Tensor]:
        for factor in range(3):
            yield module.one(x) * factor

    return sum(parts())


def caught(module: Any, x: torch.Tensor) -> Any:
    try:
        x = x + module.missing
    except AttributeError:
        x = module.one(x)
    return module.two(x)


def print_in_try(module: Any, x: torch.Tensor) -> Any:
    try:
        x = module.one(x)
        print("one")
    finally:
        x = module.two(x)
    return x


def timed(module: Any, x: torch.Tensor) -> Any:
    begun = time.perf_counter()
    x = module.one(x)
    module.seconds = time.perf_counter() - begun
    return module.two(x)


def routed(module: Any, x: torch.Tensor) -> Any:
    chosen = int(module.one(x).mean(0)[:3].argmax())
    return module.two(module.experts[chosen](x))


def mixed(module: Any, x: torch.Tensor) -> Any:
    best, out = module.one(x)[:, :3].argmax(-1), torch.zeros_like(x)
    for index, expert in enumerate(module.experts):
        if (best == index).any():
            out[best == index] = expert(x[best == index])
    return module.two(out)


def halved(module: Any, x: torch.Tensor) -> Any:
    x = module.one(x)
    while x.abs().max() > 1.0:
        x = x / 2
    return module.two(x)


def threaded(module: Any, x: torch.Tensor) -> Any:
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(module.one(x)))
    thread.start()
    thread.join()
    return module.two(found[0])


def cached(module: Any, x: torch.Tensor) -> Any:
    if x.shape not in module.cache:
        module.cache[x.shape] = torch.ones(x.shape) / 8
    return module.two(module.one(x) + module.cache[x.shape])


def counted(module: Any, x: torch.Tensor) -> Any:
    module.calls += 1
    return module.two(module.one(x) * module.calls)


def stepped(module: Any, x: torch.Tensor) -> Any:
    hidden = memory = x.new_zeros(x.shape)
    for _ in range(2):
        hidden, memory = module.cell(x, (hidden, memory))
    return module.two(hidden)


def under(module: Any, x: torch.Tensor) -> Any:
    with stage("one"):
        x = module.one(x)
    with torch.no_grad(), torch.profiler.record_function("two"):
        return module.two(x)


def patches(module: Any, x: torch.Tensor) -> Any:
    parts = x.reshape(2, 2, 4, 2).permute(0, 2, 1, 3).flatten(2)
    return module.one(parts.reshape(4, 8))


def written(module: Any, x: torch.Tensor) -> Any:
    y = module.one(x)
    y[:, ::2].mul_(2)
    y[0] += 1
    y[y < 0] = 0.0
    return module.two(y)


PASSES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "dataclass": lambda module, x: Result(module.one(x), module.two(x)),
    "dict": lambda module, x: {"y": module.one(x), "count": x.shape[0]},
    "named tuple": lambda module, x: Pair(module.one(x), [module.two(x)]),
    "hook that prints": lambda module, x: module.two(module.noisy(x)),
    "hook that changes": lambda module, x: module.two(module.doubled(x)),
    "weight norm": lambda module, x: module.two(module.normed(x)),
    "partial": lambda module, x: module.activation(module.one(x)),
    "closure": lambda module, x: (lambda y: y * module.two(x) + x)(module.one(x)),
    "weak reference": lambda module, x: module.two(module.reference()(x)),
    "TorchScript": lambda module, x: module.two(module.scripted(module.one(x))),
    "FX": lambda module, x: module.two(module.symbolic(module.one(x))),
    "DataParallel": lambda module, x: nn.DataParallel(module.one)(x),
    "autograd function": lambda module, x: module.two(Square.apply(module.one(x))),
    "checkpoint": lambda module, x: module.two(checkpoint(module.one, x, use_reentrant=False)),
    "text of a tensor": lambda module, x: (f"{module.one(x).mean()}", module.two(x))[1],
    "NumPy": lambda module, x: module.two(torch.from_numpy(np.tanh(module.one(x).detach().cpu().numpy()))),
    "where": lambda module, x: module.two(x) + torch.where(module.one(x) > 0)[0].shape[0],
    "mask": lambda module, x: module.two(module.one(x)[x[:, 0] > -100]),
    "sizes in a buffer": lambda module, x: torch.cat(torch.split(module.one(x), module.sizes.tolist())),
    "random": lambda module, x: module.two(module.one(x) * random.random()),
    "random of NumPy": lambda module, x: module.two(module.one(x) * float(np.random.rand())),  # noqa: NPY002
    "seed": lambda module, x: (torch.manual_seed(0), module.two(module.one(x)))[1],
    "unique": lambda module, x: module.two(x) + torch.unique((module.one(x) * 2).long()).numel(),
    "bincount": lambda module, x: module.two(x) + torch.bincount(module.one(x).argmax(-1), minlength=8),
    "one-hot": lambda module, x: functional.one_hot(module.one(x).argmax(-1)).float().sum(),
    "complex": lambda module, x: torch.complex(module.one(x), module.two(x)).abs(),
    "Fourier": lambda module, x: module.two(torch.fft.irfft(torch.fft.rfft(module.one(x)) * 2, n=8)),
    "sorted by value": lambda module, x: sorted([module.one(x), module.two(x)], key=lambda y: float(y.sum()))[0],
    "vmap": lambda module, x: torch.vmap(lambda row: module.one(row).sum())(x),
    "cond": lambda module, x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (module.one(x),)),
    "rows": lambda module, x: module.two(torch.stack([module.one(row) for row in x])) * len(x),
    "logger": lambda module, x: (logging.getLogger("model").debug("at %s", x.shape), module.one(x))[1],
    "cached function": lambda module, x: module.two(module.one(x) + places(8)),
    "LSTM": lambda module, x: module.two(module.lstm(module.one(x)[None])[0]),
    **{
        function.__name__: function
        for function in (generator, caught, print_in_try, timed, routed, mixed, halved, threaded, cached, counted)
    },
    **{function.__name__: function for function in (stepped, under, patches, written)},
}
