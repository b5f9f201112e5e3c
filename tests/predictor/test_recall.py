"""Recall of measured kernels by their keys: times within a step, absent kernels, several tables."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.predictor.recall import LOG_STEP, NOTHING, Recall, key_hash, logs_of

KEYS = [("aten", f"graph {index}") for index in range(5)]
HASHES = np.array([key_hash(key) for key in KEYS], dtype=np.int64)
US = np.array([1.5, 20.0, 300.0, 4000.0, 5.0], np.float32)


def test_a_key_is_hashed_with_its_runner():
    assert key_hash(("aten", "a")) != key_hash(("inductor", "a"))
    digest = hashlib.blake2b(b"aten\na", digest_size=8).digest()
    assert key_hash(("aten", "a")) == int.from_bytes(digest, "little", signed=True)  # the same in every process


def test_kernels_are_found_in_any_order():
    recall = Recall.of(HASHES, US)
    asked = [KEYS[3], ("inductor", "graph 3"), KEYS[0]]
    rows = recall.find(asked).tolist()
    assert rows[1] == -1
    assert [recall.us_at(row) for row in rows if row >= 0] == pytest.approx([4000.0, 1.5], rel=LOG_STEP / 2 * 1.01)
    assert recall.find([]).tolist() == []
    assert Recall.nothing().find(KEYS).tolist() == [-1] * 5


@given(st.floats(1e-6, 8e6))
def test_a_time_is_recalled_to_half_a_step(us: float):
    recall = Recall.of(HASHES[:1], np.array([us]))
    assert abs(math.log(recall.us_at(0) / us)) <= LOG_STEP / 2 * 1.001


def test_quantities_that_were_not_measured():
    host_us = np.array([7.0, -1.0, 0.0, 8.0, 9.0], np.float32)
    workspace = np.array([-1.0, 0.0, 512.0, 1_049_088.0, -300.0], np.float32)
    recall = Recall.of(HASHES, US, host_us, workspace)
    rows = recall.find(KEYS)
    found = [recall.host_us_at(row) for row in rows]
    assert found[1] is found[2] is None
    assert [found[0], *found[3:]] == pytest.approx([7.0, 8.0, 9.0], rel=LOG_STEP)
    assert [recall.workspace_bytes_at(row) for row in rows] == [None, 0, 512, 1_049_088, None]
    without = Recall.of(HASHES, US)
    assert (len(without.host_us), without.host_us_at(0), without.workspace_bytes_at(0)) == (0, None, None)


def test_logarithms_of_nothing():
    assert logs_of([0.0, -1.0, 1.0, 1e300]).tolist() == [NOTHING, NOTHING, 0, -NOTHING - 1]


def test_a_kernel_of_both_is_as_the_others_have_it():
    both = Recall.of(HASHES[:3], US[:3]).with_more(Recall.of(HASHES[2:], 2 * US[2:], np.full(3, 6.0, np.float32)))
    rows = both.find(KEYS)
    assert [both.us_at(row) for row in rows] == pytest.approx([1.5, 20.0, 600.0, 8000.0, 10.0], rel=LOG_STEP)
    assert [both.host_us_at(row) for row in rows[:2]] == [None, None]
    assert both.host_us_at(rows[2]) == pytest.approx(6.0, rel=LOG_STEP)
