"""Comparison of two checkouts: equality to the last digit, differences, resumed runs, and processes that die."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.scripts import load_script

script = load_script("compare_predictions")

CHECKOUT = """
import os
from types import SimpleNamespace

def load_model(spec, *, batch_size, precision):
    with open({log!r}, "a") as log:
        print(spec, batch_size, precision, file=log)
    if spec == "alexnet" and {dies}:
        os._exit(9)
    if precision == "bfloat16":
        raise ValueError("{words}")
    print("models may print")
    return SimpleNamespace(module=None, inputs=())

def predict(module, inputs, **about):
    mode = {{"latency_ms": {latency}, "speedup": None}}
    report = {{"model": about["model_name"], "modes": {{"eager": mode}}, "warnings": ["{words}"], **{more}}}
    return SimpleNamespace(to_dict=lambda: report)

plan = analyze_memory = predict
"""
CASES = ["--only", "predict alexnet"]  # 2 batch sizes x 3 precisions


def checkout(
    tmp_path: Path, name: str, latency: str = "0.1", words: str = "so", dies: bool = False, more: str = "{}"
) -> Path:
    package = tmp_path / name / "costmodel"
    package.mkdir(parents=True, exist_ok=True)
    source = CHECKOUT.format(log=str(tmp_path / f"{name}.log"), latency=latency, words=words, dies=dies, more=more)
    (package / "__init__.py").write_text(source)
    return package.parent


def run(tmp_path: Path, *arguments: object) -> int:
    found = script.main([*map(str, arguments), *CASES, "--cache", str(tmp_path / "cache")])
    assert isinstance(found, int)
    return found


def asked(tmp_path: Path, name: str) -> list[str]:
    return (tmp_path / f"{name}.log").read_text().splitlines()


def test_60_models_in_six_settings_and_other_functions_for_twelve() -> None:
    cases = script.all_cases()
    assert len(script.MODELS) == len(set(script.MODELS)) == 60
    assert sum(case.question == "predict" for case in cases) == 360
    assert len(cases) == 360 + 12 * 6
    files = {name.partition(":")[0] for name in script.USER.split()}
    assert files == {path.name for path in script.COMPARED_MODELS.glob("*.py")}


def test_a_last_digit_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = checkout(tmp_path, "a"), checkout(tmp_path, "b", latency="0.10000000000000002")
    assert run(tmp_path, before, after) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("predict alexnet batch 1 float16: modes eager latency_ms 0.1 -> 0.1 (")
    assert printed[-1] == "2 of 6 cases equal, 4 differ; 2 are errors in B"
    assert run(tmp_path, before, before) == 0
    assert capsys.readouterr().out == "6 of 6 cases equal, 0 differ; 2 are errors in B\n"


def test_the_summary_has_the_change_of_each_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, checkout(tmp_path, "a"), checkout(tmp_path, "b", latency="0.11")) == 1
    printed = capsys.readouterr().out
    assert "eager latency_ms: 4 reports moved, mean +10 %, mean size 10 %, at most 10 %" in printed


def test_texts_count_unless_only_numbers_do(tmp_path: Path) -> None:
    sides = checkout(tmp_path, "a"), checkout(tmp_path, "b", words="otherwise")
    assert run(tmp_path, *sides) == 1
    assert run(tmp_path, *sides, "--numbers-only") == 0


def test_a_key_may_be_added_but_not_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = checkout(tmp_path, "a"), checkout(tmp_path, "b", more="{'roofline_ms': 3.0}")
    assert run(tmp_path, before, after) == 0
    assert "only B has the keys roofline_ms" in capsys.readouterr().out
    assert run(tmp_path, after, before) == 1
    assert "roofline_ms 3 -> null" in capsys.readouterr().out.replace("3.0", "3")


def test_lists_of_other_lengths_differ() -> None:
    assert list(script.differences({"layers": [1.0]}, {"layers": [1.0, 2.0]})) == [("layers", [1.0], [1.0, 2.0])]
    assert list(script.differences({"a": 1}, {"a": 1.0})) == [("a", 1, 1.0)]  # JSON prints them differently


def test_a_file_stands_for_its_checkout(tmp_path: Path) -> None:
    before = checkout(tmp_path, "a")
    assert run(tmp_path, before, "--write", tmp_path / "a.json") == 0
    assert len(json.loads((tmp_path / "a.json").read_text())) == 6
    assert run(tmp_path, tmp_path / "a.json", before) == 0
    assert run(tmp_path, tmp_path / "a.json", checkout(tmp_path, "b", latency="0.2")) == 1


def test_a_cached_answer_is_not_asked_again(tmp_path: Path) -> None:
    before = checkout(tmp_path, "a")
    for _ in range(2):
        run(tmp_path, before, before, "--jobs", 2)
    assert len(asked(tmp_path, "a")) == 6
    run(tmp_path, checkout(tmp_path, "a", latency="0.3"), "--write", tmp_path / "a.json")
    assert len(asked(tmp_path, "a")) == 12  # another checkout


def test_a_process_that_dies_is_an_error_and_is_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dying = checkout(tmp_path, "a", dies=True)
    assert run(tmp_path, dying, checkout(tmp_path, "b")) == 1
    assert "0 of 6 cases equal, 6 differ" in capsys.readouterr().out
    run(tmp_path, dying, "--write", tmp_path / "a.json")
    assert len(asked(tmp_path, "a")) == 12


def test_neither_a_checkout_nor_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, tmp_path / "absent.json", tmp_path)
    assert caught.value.code == 2
    assert "absent.json: neither a checkout" in capsys.readouterr().err


@pytest.mark.slow
def test_this_checkout_answers_for_a_user_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path(__file__).parents[2]
    only = ["--only", "predict two_images.py:batch_{batch} batch 32 float16", "--cache", str(tmp_path)]
    assert script.main([str(here), str(here), *only]) == 0
    assert capsys.readouterr().out == "1 of 1 cases equal, 0 differ; 0 are errors in B\n"
