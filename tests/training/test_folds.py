"""Which rows the networks of a fold may learn from."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.calibration.evaluation import banned_kernels
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.training.families import FOLDS, fold_of
from costmodel.training.folds import Folds, Origin, by_family, by_shape

FAMILIES = ("resnet", "vgg", "dla", "vit", "conv", "matmul")


@settings(deadline=None)  # machines are shared
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_no_shape_is_learnt_and_tested_by_one_fold(shapes):
    shape = np.array(shapes)
    folds = by_shape(shape)
    for learns, tested in folds:
        assert not set(shape[learns]) & set(shape[tested])
        assert (learns | tested).all()
    assert sorted(folds.tests) == sorted(shape % FOLDS)


row = st.tuples(st.integers(0, 20), st.sampled_from(FAMILIES), st.integers(0, 9))


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=50), st.dictionaries(st.integers(0, FOLDS - 1), st.sets(st.integers(0, 9))))
def test_a_fold_learns_nothing_of_its_shapes_its_families_and_its_models_kernels(rows, banned_numbers):
    shape = np.array([shape for shape, *_ in rows])
    origins = [Origin(("aten", str(number)), family) for _, family, number in rows]
    banned = {fold: {("aten", str(number)) for number in numbers} for fold, numbers in banned_numbers.items()}
    folds = by_family(shape, origins, banned)
    for fold in range(FOLDS):
        learnt = [index for index, learns in enumerate(folds.learns[fold]) if learns]
        tested = set(shape[folds.tests == fold])
        for index in learnt:
            assert shape[index] not in tested
            assert origins[index].family in ("conv", "matmul") or fold_of(origins[index].family) != fold
            assert origins[index].key not in banned.get(fold, ())
        kept_out = set(range(len(rows))) - set(learnt)
        for index in kept_out:  # and nothing else is kept from it
            named = origins[index].family not in ("conv", "matmul") and fold_of(origins[index].family) == fold
            assert shape[index] in tested or named or origins[index].key in banned.get(fold, ())


def test_a_shape_is_tested_in_the_fold_of_the_first_family_it_comes_from():
    shape = np.array([7, 7, 7, 3])
    origins = [Origin(("aten", str(i)), family) for i, family in enumerate(("conv", "vgg", "resnet", "conv"))]
    folds = by_family(shape, origins, {})
    assert folds.tests.tolist() == [fold_of("vgg")] * 3 + [3]


def test_folds_without_rows_on_either_side_are_left_out():
    learns = np.array([[False, False], [True, False], [True, True]])
    folds = Folds(np.array([0, 1]), learns)
    assert [(found.tolist(), tested.tolist()) for found, tested in folds] == [([True, False], [False, True])]


def test_a_fold_is_banned_from_the_kernels_of_its_models_in_both_programs():
    def program(*keys: str) -> object:
        return type("P", (), {"kernels": [type("K", (), {"key": ("aten", key)})() for key in keys]})()

    cases = [MeasuredModel(name, 1, "float32", "nchw", {}, {}) for name in ("densenet121", "densenet169", "vgg16")]
    issued = [(program("a"), program("b")), (program("c"), program()), (program("a"), program("d"))]
    banned = banned_kernels(cases, issued)
    assert fold_of("densenet") != fold_of("vgg")
    assert banned == {
        fold_of("densenet"): {("aten", "a"), ("aten", "b"), ("aten", "c")},
        fold_of("vgg"): {("aten", "a"), ("aten", "d")},
    }
