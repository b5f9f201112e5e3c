"""Messages of Dynamo, of releases 2.11 to 2.13, in the words of the code that causes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from costmodel.capture.break_reasons import in_plain_words, is_consequence, is_recompile_limit


def message(title: str, context: str = "", explanation: str = "Dynamo does not do this.") -> str:
    """A message as Dynamo writes it."""
    hint = "Please report an issue to PyTorch."
    return f"{title}\n  Explanation: {explanation}\n  Hint: {hint}\n\n  Developer debug context: {context}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (message("Failed to trace builtin operator", "builtin print [<class 'Tensor'>] False"), "print()"),
        (message("Data-dependent branching", "attempted to jump with TensorVariable()"), "a branch on the values"),
        (message("generic_jump TensorVariable()"), "a branch on the values of a tensor"),
        (message("Unsupported Tensor.item() call with capture_scalar_outputs=False"), "a tensor's value is read"),
        (message("Data dependent operator", "aten._local_scalar_dense.default"), "a tensor's value is read"),
        (message("Dynamic shape operator", "aten.nonzero.default"), "aten.nonzero, whose result depends on values"),
        (message("Tensor.tolist() with non-integer tensor"), "a tensor's values are read (.tolist())"),
        (message("logging.Logger method not supported for non-export cases"), "a logging call"),
        (
            message(
                "Attempted to call function marked as skipped", "module: time, qualname: perf_counter, skip reason"
            ),
            "time.perf_counter()",
        ),
        (
            message(
                "Attempted to call function marked as skipped", "module: _warnings, qualname: warn, skip reason: x"
            ),
            "warnings.warn()",
        ),
        (
            message(
                "Attempted to call function marked as skipped", "module: <unknown module>, qualname: Random.random"
            ),
            "random.random()",
        ),
        (message("Skip calling `torch.compiler.disable()`d function", "<function f at 0x1>"), "disable on f"),
        (message("Skip inlining `torch.compiler.disable()`d function", "<function f at 0x1>"), "disable on f"),
        (
            message(
                "Unsupported method call",
                "call_method UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}",
                "Dynamo does not know how to trace method `now` of class `type`",
            ),
            "datetime.datetime.now()",
        ),
        (message("Missing tp_iternext", "next(Pairs)"), "a loop over an object of class Pairs"),
        (message("Observed exception", 'raised exception TypeError("not so")'), "TypeError is raised: not so"),
        (message("Attempted to wrap RNN, GRU, or LSTM", "LSTM(8, 8)"), "nn.LSTM, nn.GRU and nn.RNN"),
        (message("Attempted to copy.deepcopy a tensor", "copy.deepcopy(x)"), "copy.deepcopy() of a tensor"),
        (message("torch.jit.script/freeze modules unsupported", "RecursiveScriptModule("), "a TorchScript module"),
        (
            message("Attempted to inline function marked as skipped", "qualname: _CachedForward.__get__, name"),
            "TorchSc",
        ),
        (message("Attempted to inline function marked as skipped", "qualname: tqdm.__iter__, name"), "tqdm.__iter__()"),
        (
            message(
                "Failed to convert args/kwargs to proxy", "call_function args: UserDefinedObjectVariable(Generator)"
            ),
            "an argument of class Generator",
        ),
        (
            message("Unresolved GetAttrVariable comparison", "", "Cannot compare LoggingLoggerVariable()"),
            "a logging call",
        ),
        (
            message("Attempted to call function marked as skipped", "module: tqdm.std, qualname: tqdm.__new__, skip"),
            "tqdm.std.tqdm()",
        ),
        (message("Call to `torch._dynamo.step_unsupported()`"), "a break within a with statement"),
        (message("Something of a later release", "thing"), "Something of a later release: thing"),
        (message("Something of a later release", "x" * 200), "Something of a later release"),
        ("", "unknown"),
    ],
)
def test_what_breaks_the_graph(text: str, words: str):
    found = in_plain_words(text)
    assert words in found
    assert "\n" not in found
    assert len(found) <= 120


def test_a_context_of_another_form_leaves_the_title():
    for title in ("Failed to trace builtin operator", "Unsupported method call", "Missing tp_iternext"):
        assert in_plain_words(message(title, "?")).startswith(title)


def test_consequences_are_no_reasons():
    assert is_consequence(message("Call to `torch._dynamo.step_unsupported()`"))
    assert is_consequence(message("Attempt to trace generator"))
    assert not is_consequence(message("Data-dependent branching"))


def test_the_limit_of_recompilations_is_known():
    assert is_recompile_limit(message("Dynamo recompile limit exceeded", "Limit type: recompile_limit"))
    assert not is_recompile_limit(message("Data-dependent branching"))


def test_every_message_of_this_release_reads_as_one_line():
    registry = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    if not registry.exists():
        pytest.skip("this release of torch has no list of messages")
    for entry, *_ in json.loads(registry.read_text(encoding="utf-8")).values():
        found = in_plain_words(message(entry["Gb_type"], entry["Context"], entry["Explanation"]))
        assert found
        assert "\n" not in found
