"""Threads: many at once get the answers of one, and what runs beside a capture is not affected by it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.memory.checkpoint_plan import CheckpointPlan
from costmodel.zoo.build import skipped_initialisation

H200 = "nvidia-h200"
DEADLINE_S = 300
"""Generous: reached only by a thread that waits for ever."""

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


def cases() -> list[Case]:
    """Small models that take different ways through a capture: hooks, patched attention, recurrent operators."""
    sequence = torch.empty(2, 5, 16)
    return [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval(), (torch.empty(1, 3, 16, 16),)),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (sequence,)),
        (nn.MultiheadAttention(16, 2, batch_first=True).eval(), (sequence,) * 3),
        (nn.LSTM(8, 8).eval(), (torch.empty(4, 1, 8),)),
    ]


def in_threads(jobs: Sequence[Callable[[], Any]], threads: int) -> list[Any]:
    """Results of all jobs, started together on as many threads; an error of one is raised."""
    start = threading.Barrier(threads)

    def run(job: Callable[[], Any], first: bool) -> Any:
        if first:
            start.wait(DEADLINE_S)
        return job()

    with ThreadPoolExecutor(threads) as pool:
        found = [pool.submit(run, job, index < threads) for index, job in enumerate(jobs)]
        return [one.result(DEADLINE_S) for one in found]


def predicted(case: Case) -> dict[str, Any]:
    """A prediction in JSON's types."""
    return costmodel.predict(*case, hardware=H200).to_dict()


def analysed(case: Case) -> dict[str, Any]:
    """A memory report in JSON's types."""
    return costmodel.analyze_memory(*case, hardware=H200).to_dict()


def planned(case: Case) -> dict[str, Any]:
    """A plan in JSON's types."""
    return costmodel.plan(*case, hardware=H200).to_dict()


def test_eight_threads_get_the_answers_of_one() -> None:
    models = cases()
    calls = [*product((predicted, analysed), models[1:]), (predicted, models[0]), (planned, models[0])]
    jobs = [partial(ask, case) for ask, case in calls]
    assert in_threads(jobs, 8) == [job() for job in jobs]


def test_threads_may_share_one_module() -> None:
    model, inputs = cases()[1]
    before = {key: id(tensor) for key, tensor in model.named_parameters()}
    jobs = [lambda: analysed((model, inputs)), lambda: predicted((model, inputs))] * 2
    found = in_threads(jobs, 4)
    assert found == [job() for job in jobs]
    assert {key: id(tensor) for key, tensor in model.named_parameters()} == before
    assert not model.training


def test_the_first_use_may_be_in_threads() -> None:
    """Modules are imported on first use, here by four threads at once."""
    code = f"""
import threading
import torch
import costmodel

def ask():
    start.wait()
    found.append(costmodel.predict(torch.nn.Linear(4, 4).eval(), (torch.empty(2, 4),), hardware="{H200}").to_dict())

found, start = [], threading.Barrier(4)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 4 and found.count(found[0]) == 4, found
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


class Waiting(nn.Module):
    """A module whose forward pass stops until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inside, self.go_on = threading.Event(), threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inside.set()
        assert self.go_on.wait(DEADLINE_S)
        return self.linear(x).relu()


def beside_a_capture(work: Callable[[], Any]) -> tuple[Any, str]:
    """Results of some work done by this thread while another one is in the middle of a capture, and its graph."""
    model = Waiting().eval()
    with ThreadPoolExecutor(1) as pool:
        graph = pool.submit(capture, model, (torch.empty(2, 4),), "linear")
        try:
            assert model.inside.wait(DEADLINE_S)
            result = work()
        finally:
            model.go_on.set()
        return result, str(graph.result(DEADLINE_S))


def test_other_threads_run_as_ever_beside_a_capture() -> None:
    """Attention on its fast path and off it, autocast, hooks on modules, dropout: to the last bit."""
    heads = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)

    def work() -> list[torch.Tensor]:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            cast = nn.functional.scaled_dot_product_attention(x, x, x) @ x.mT
        with torch.no_grad():
            return [cast, heads(x, x, x)[0], heads(x, x, x, need_weights=False)[0], encoder(x)]

    alone = work()
    beside, graph = beside_a_capture(work)
    assert [tensor.dtype for tensor in beside] == [tensor.dtype for tensor in alone]
    assert all(torch.equal(one, other) for one, other in zip(alone, beside, strict=True))
    assert graph == str(capture(Plain().eval(), (torch.empty(2, 4),), "linear"))


class Plain(nn.Module):
    """The computation of `Waiting`, without waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def test_other_threads_initialise_their_weights_while_a_model_is_built() -> None:
    def initialised() -> bool:
        return bool(nn.init.ones_(torch.zeros(3)).sum() == 3)

    with skipped_initialisation(), ThreadPoolExecutor(1) as pool:
        assert not initialised()
        assert pool.submit(initialised).result(DEADLINE_S)
    assert initialised()


class Asking(Plain):
    """Predicts another model in its forward pass, and hands the answer to a function."""

    def __init__(self, case: Case, keep: Callable[[Any], None]) -> None:
        super().__init__()
        self.case, self.keep = case, keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.keep(predicted(self.case))
        return y.relu()


def test_a_forward_pass_may_predict() -> None:
    """The inner prediction is right, and no part of what the outer one records."""
    case, found = cases()[1], list[Any]()
    x = torch.empty(2, 4)
    ask = partial(costmodel.predict, hardware=H200, model_name="plain", check=False)
    outer, plain = ask(Asking(case, found.append).eval(), (x,)), ask(Plain().eval(), (x,))
    assert [module.type for module in outer.modules] == ["Asking", "Linear"]
    assert replace(outer, modules=plain.modules) == plain
    assert found == [predicted(case)]


def test_a_prediction_in_a_forward_pass_breaks_its_graph() -> None:
    """The list of answers grows outside Dynamo's view: else each call compiles again, until none is compiled."""
    case, found = cases()[1], list[Any]()
    keep = torch.compiler.disable(found.append)
    outer = costmodel.predict(Asking(case, keep).eval(), (torch.empty(2, 4),), hardware=H200)
    assert (outer.graphs.count, outer.graphs.error) == (2, "")
    assert outer.graphs.breaks
    assert found
    assert all(answer == predicted(case) for answer in found)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exception_lets_the_next_thread_in(error: type[BaseException]) -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise error

    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else costmodel.CostmodelError):
        costmodel.predict(Failing().eval(), (torch.empty(2, 4),), hardware=H200)
    case = Plain().eval(), (torch.empty(2, 4),)
    assert in_threads([lambda: predicted(case)], 1) == [predicted(case)]


def test_a_process_forked_during_a_capture_predicts() -> None:
    code = f"""
import os, signal, threading, warnings
import torch
import costmodel
from torch import nn
warnings.simplefilter("ignore")

class Waiting(nn.Module):
    def forward(self, x):
        inside.set(); go_on.wait()
        return x.relu()

def ask():
    return costmodel.predict(nn.ReLU().eval(), (torch.empty(2, 4),), hardware="{H200}", model_name="m").to_dict()

inside, go_on, before = threading.Event(), threading.Event(), ask()
other = threading.Thread(target=costmodel.predict, args=(Waiting().eval(), (torch.empty(2, 4),)))
other.start(); inside.wait()
child = os.fork()
if not child:
    signal.alarm({DEADLINE_S // 2})
    os._exit(0 if ask() == before else 3)
status = os.waitpid(child, 0)[1]
go_on.set(); other.join()
assert status == 0, status
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


def test_threads_apply_and_checkpoint_while_others_predict_the_same_module() -> None:
    model = cases()[0][0]
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        expected = model(x)
    profile = next(name for name in costmodel.list_profiles() if costmodel.load_profile(name).on_cpu)
    plan = costmodel.plan(model, (x,), hardware=profile)
    kept = CheckpointPlan("model", ("0",), 1, 1, 0.0)

    def applied() -> bool:
        return torch.allclose(costmodel.apply(model, plan, (x,), check=False)(x), expected, atol=1e-5)

    def saved() -> bool:
        twin = costmodel.checkpointed(model, kept)
        return all(one is other for one, other in zip(twin.parameters(), model.parameters(), strict=True))

    def asked() -> bool:
        return bool(analysed((model, (x,))))

    assert all(in_threads([applied, saved, asked, asked], 4))
