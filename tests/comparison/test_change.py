"""Change of a figure: the interval of a ratio by hand, properties, verdicts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.comparison.change import FASTER, SAME, SLOWER, UNCERTAIN, Bounded, Sharing, change_of

ALONE = Sharing(profile=False, host=False)
FAMILY = Sharing(profile=True, host=True)


def even(value: float, factor: float) -> Bounded:
    return Bounded(value, value / factor, value * factor)


def test_errors_of_two_profiles_are_independent():
    # half-widths ln 1.3 and ln 1.4: sqrt(0.2624^2 + 0.3365^2) = 0.4267, a factor of 1.532
    found = change_of(even(2.0, 1.3), even(3.0, 1.4), ALONE)
    assert found.ratio == 1.5
    assert found.ratio_low == pytest.approx(1.5 / 1.5322, rel=1e-3)
    assert found.ratio_high == pytest.approx(1.5 * 1.5322, rel=1e-3)
    assert found.verdict == UNCERTAIN


def test_errors_of_one_profile_correlate():
    # equal half-widths w: w sqrt(2 (1 - 0.3)) = 1.1832 w; 1.1 ** 1.1832 = 1.1194
    found = change_of(even(2.0, 1.1), even(3.0, 1.1), FAMILY)
    assert found.ratio_high / found.ratio == pytest.approx(1.1194, rel=1e-4)
    assert found.verdict == SLOWER


def test_an_unchanged_half_leaves_less_of_the_error():
    # r = 0.3 + 0.7 / 2 = 0.65: w sqrt(0.7) = 0.83666 w; 1.1 ** 0.83666 = 1.08300
    found = change_of(even(2.0, 1.1), even(3.0, 1.1), Sharing(profile=True, host=True, unchanged=0.5))
    assert found.ratio_high / found.ratio == pytest.approx(1.0830, rel=1e-4)


def test_the_hosts_that_both_intervals_cover_cancel():
    before, after = Bounded(1.0, 1 / 1.1, 2.0 * 1.1), Bounded(0.8, 0.8 / 1.1, 0.8 * 2.0 * 1.1)
    alike = change_of(before, after, FAMILY)
    assert alike.ratio_high / alike.ratio == pytest.approx(1.1194, rel=1e-4)  # as without hosts
    apart = change_of(before, after, Sharing(profile=True, host=False))
    assert apart.ratio_high / apart.ratio == pytest.approx(2.0 * 1.1194, rel=1e-4)
    assert apart.ratio / apart.ratio_low == pytest.approx(2.0 * 1.1194, rel=1e-4)


def test_of_unequal_host_parts_the_difference_remains_on_the_side_of_the_longer():
    before, after = Bounded(1.0, 1 / 1.1, 2.0 * 1.1), even(1.0, 1.1)  # the change made a model independent of its host
    found = change_of(before, after, FAMILY)
    assert found.ratio / found.ratio_low == pytest.approx(2.0 * 1.1194, rel=1e-4)
    assert found.ratio_high / found.ratio == pytest.approx(1.1194, rel=1e-4)


@pytest.mark.parametrize(
    ("ratio", "factor", "less_is_faster", "verdict"),
    [
        (0.8, 1.0, True, FASTER),
        (0.8, 1.0, False, SLOWER),
        (1.2, 1.0, True, SLOWER),
        (1.2, 1.0, False, FASTER),
        (1.02, 1.0, True, SAME),
        (1.04, 1.0, True, SLOWER),
        (1.0, 1.05, True, UNCERTAIN),
        (1.0, 1.005, True, SAME),
    ],
)
def test_verdicts(ratio: float, factor: float, less_is_faster: bool, verdict: str):
    assert change_of(even(1.0, factor), even(ratio, factor), ALONE, less_is_faster=less_is_faster).verdict == verdict


figures = st.tuples(st.floats(1e-6, 1e9), st.floats(1.0, 50.0), st.floats(1.0, 50.0)).map(
    lambda found: Bounded(found[0], found[0] / found[1], found[0] * found[2])
)
sharings = st.builds(Sharing, st.booleans(), st.booleans(), st.floats(0.0, 1.0))


@given(figures, figures, sharings)
def test_the_interval_holds_the_ratio_and_turns_with_the_order(before: Bounded, after: Bounded, sharing: Sharing):
    there, back = change_of(before, after, sharing), change_of(after, before, sharing)
    assert there.ratio_low <= there.ratio <= there.ratio_high < math.inf
    assert back.ratio_low == pytest.approx(1.0 / there.ratio_high)
    assert back.ratio_high == pytest.approx(1.0 / there.ratio_low)
    assert (there.verdict, back.verdict) in {(FASTER, SLOWER), (SLOWER, FASTER), (SAME, SAME), (UNCERTAIN, UNCERTAIN)}


@given(figures)
def test_a_figure_is_the_same_as_itself(figure: Bounded):
    assert change_of(figure, figure, Sharing(profile=True, host=True, unchanged=1.0)).verdict == SAME


@given(figures, figures, st.floats(0.0, 1.0))
def test_what_is_shared_never_widens_the_interval(before: Bounded, after: Bounded, unchanged: float):
    shared, alone = (change_of(before, after, how) for how in (Sharing(True, True, unchanged), ALONE))
    assert shared.ratio_high <= alone.ratio_high * (1 + 1e-9)
    assert shared.ratio_low >= alone.ratio_low * (1 - 1e-9)
