"""Files of arrays: the reason for a refusal, in one line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from costmodel.errors import ProfileError
from costmodel.tensor_file import read_tensors


class OddError(ValueError):
    """Error of a library, whose text may be anything."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("it has\ntwo lines"), r"not a tree file: it has\ntwo lines"),
        (KeyError("secret"), "not a tree file: KeyError"),
        (OddError("its text"), "not a tree file: OddError"),
        (ProfileError("of another version"), "of another version"),
    ],
)
def test_a_parser_that_raises_is_quoted_only_where_its_words_are_ours(
    tmp_path: Path, error: Exception, said: str
) -> None:
    path = tmp_path / "trees.safetensors"
    save_file({"a": np.zeros(2, np.float32)}, path, {"schema": "1"})

    def refuse(metadata: object, tensors: object) -> None:
        raise error

    with pytest.raises(ProfileError, match=rf"^{re.escape(f'{path}: {said}')}$"):
        read_tensors(path, "tree", refuse)
