"""Failed guards, as torch 2.11 to 2.13 write them, in the words of the code that they check."""

from __future__ import annotations

import pytest

from costmodel.capture.guard_reasons import what_changes

PLACE = "    # self.calls += 1  # model.py:12 in forward (HINT: ...)\nUser stack trace:\n  File 'model.py', line 12"


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ("0/7: self.calls == 7", "self.calls changes"),
        ("L['self'].calls == 7", "self.calls changes"),
        ("0/0: self.kept is None", "self.kept changes"),
        ("0/0: G['COUNT'] == 0", "the global COUNT changes"),
        ("0/0: self._modules['head']._buffers['mean'].kept == 1", "self.head.mean.kept changes"),
        ("0/1: len(self.history) == 1", "the length of self.history changes"),
        ("0/0: not self.history", "the length of self.history changes"),
        ("1/0: ___stack0 == 1652.27081912", "a value from before a graph break changes"),
        ("2/0: t == 0.5", "t changes"),
        ("0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3", "the size of x changes"),
        ("0/0: tensor 'L['x']' dtype mismatch. expected Float, actual Half", "the dtype of x changes"),
        ("0/0: ___check_obj_id(self.act, 1403), type=Act", "self.act is another object"),
        ("0/0: not ___dict_contains(torch.Size([2]), self.cache)", "the keys of self.cache change"),
        ("0/0: hasattr(self, 'done')", "self.done is set or deleted"),
        ("0/0: something(else) entirely", "the check something(else) entirely fails"),
    ],
)
@pytest.mark.parametrize("rest", ["", PLACE])
def test_what_changes(guard: str, words: str, rest: str):
    assert what_changes(guard + rest) == words


def test_an_empty_reason():
    assert what_changes("") == "a check fails"
