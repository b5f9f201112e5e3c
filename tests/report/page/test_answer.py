"""The answer at the top of a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.report import Graphs, ModePrediction, Report
from costmodel.report.page.answer import answer_of, is_launch_bound
from tests.support.sample_reports import failing, given_up, report


def test_a_model_to_compile() -> None:
    answer = answer_of(report())
    assert (answer.tone, answer.headline) == ("good", "Compile it with reduce-overhead.")
    assert answer.gain == "3.00× as fast as eager, 2.75–3.25× at 90 %"
    assert answer.code == 'model = torch.compile(model, mode="reduce-overhead")'
    # host 5.9 of 6.0 ms, device 2.0: a third
    assert answer.sentence == (
        "In eager mode the GPU works 33% of a call and waits for the CPU to launch kernels. A CUDA graph replays them "
        "with one launch, and fused kernels cut its work from 2.000 to 1.900 ms."
    )
    figures = [(tile.title, tile.figure, tile.note) for tile in answer.tiles]
    assert figures == [
        ("Latency", "2.000 ms", "eager 6.000 ms"),
        ("Throughput", "1,000/s", "images; eager 333/s"),  # 2 images in 2 ms, and in 6 ms
        (
            "Break-even",
            "8,100 calls",
            "compiling takes 32 s",
        ),  # 32.5 to even; an interval has two ends
        ("Eager is bound by", "CPU launches", "the GPU works 33% of a call"),
    ]


@pytest.mark.parametrize("made", [given_up, failing])
def test_a_model_to_leave_has_no_line_to_paste(made: type[Report]) -> None:
    answer = answer_of(made())
    assert (answer.tone, answer.headline, answer.gain, answer.code) == ("plain", "Leave it as it is.", "", "")
    assert answer.sentence.startswith("torch.compile ")


def test_a_doubtful_model_says_the_likelier_side_and_why() -> None:
    doubtful = replace(report(), verdict="uncertain", leaning="compile", best_mode="default")
    answer = answer_of(doubtful)
    assert (answer.tone, answer.headline) == ("doubtful", "Uncertain, more likely compile.")
    assert answer.sentence.startswith("The 90 % prediction interval of the speedup contains 1; best guess default")
    assert answer.code == "model = torch.compile(model)"
    assert answer_of(replace(doubtful, leaning=None)).headline == "Uncertain."


def test_a_model_that_does_not_fit_says_so_first() -> None:
    large = replace(report(), too_large="a forward pass needs 205 GiB", verdict="uncertain", leaning=None)
    assert answer_of(large).headline == "Too large for some-gpu."


def test_a_device_bound_model_gains_by_fusion() -> None:
    eager, best = ModePrediction(4.0, 3.9, 4.1, 1.0, 3.9), ModePrediction(3.0, 2.9, 3.1, 0.1, 2.9, 1.33, 1.2, 1.4)
    found = replace(report(), modes={"eager": eager, "default": best}, best_mode="default", graphs=Graphs(1, True))
    assert (
        answer_of(found).sentence
        == "The GPU is busy 98% of an eager call; fused kernels cut its work from 3.900 to 2.900 ms."
    )
    assert answer_of(found).tiles[-1].figure == "the GPU"


def test_launch_bound_needs_most_of_the_call_and_more_than_the_device() -> None:
    assert is_launch_bound(ModePrediction(10.0, 9.0, 11.0, 9.0, 5.0))
    assert not is_launch_bound(ModePrediction(10.0, 9.0, 11.0, 8.9, 5.0))
    assert not is_launch_bound(ModePrediction(10.0, 9.0, 11.0, 9.5, 9.6))


def test_an_empty_prediction_has_an_answer() -> None:
    answer = answer_of(replace(report(), modes={}, best_mode="", verdict="uncertain", leaning=None))
    assert answer.headline == "Uncertain."
    assert answer.tiles == ()
