"""Comparisons of reports: matching, layers by name, regressions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.comparison.change import FASTER, SAME, SLOWER, UNCERTAIN
from costmodel.comparison.compare import compare_reports, counts
from costmodel.errors import RequestError
from costmodel.report import LayerPrediction, ModePrediction, Report
from tests.support.sample_reports import report


def slowed(given: Report, factor: float, mode: str = "default") -> Report:
    """The report with one mode `factor` times as slow, and every layer too."""
    old = given.modes[mode]
    times = {name: getattr(old, name) * factor for name in ("latency_ms", "low_ms", "high_ms")}
    gains = {name: getattr(old, name) / factor for name in ("speedup", "speedup_low", "speedup_high")}
    layers = tuple(replace(layer, compiled_us=(layer.compiled_us or 0) * factor) for layer in given.layers)
    return replace(given, modes={**given.modes, mode: replace(old, **times, **gains)}, layers=layers)


def layer(name: str, us: float, factor: float = 1.05) -> LayerPrediction:
    return LayerPrediction(name, "conv2d", ("conv2d",), 0.0, us, us, 1.0, 1 / factor, factor, "inductor")


def test_a_report_is_the_same_as_itself():
    found = compare_reports([report()], [report()])
    (case,) = found.cases
    assert {mode.latency.verdict for mode in case.modes} == {SAME}
    assert {mode.speedup.verdict for mode in case.modes if mode.speedup} == {SAME}
    assert counts(case.layers) == {SAME: 1, UNCERTAIN: 1}  # one has no interval
    assert found.regressions(0.0) == ()


def test_a_mode_and_its_layers_become_slower():
    (case,) = compare_reports([report()], [slowed(report(), 2.0)]).cases
    verdicts = {mode.mode: (mode.latency.verdict, mode.speedup and mode.speedup.verdict) for mode in case.modes}
    # eager's layers are what they were; no compiled layer is, so that nothing is certain of the third mode
    undecided = (UNCERTAIN, UNCERTAIN)
    assert verdicts == {"eager": (SAME, None), "default": (SLOWER, SLOWER), "reduce-overhead": undecided}
    (convolution, _) = case.layers
    assert convolution.eager is not None
    assert convolution.eager.verdict == SAME
    assert convolution.compiled is not None
    assert (convolution.compiled.before, convolution.compiled.after) == (10.0, 20.0)


def test_the_fastest_modes_are_compared_also_where_they_differ():
    lost = replace(report(), modes={"eager": report().modes["eager"]})
    (case,) = compare_reports([report()], [lost]).cases
    assert (case.best_before, case.best_after) == ("reduce-overhead", "eager")
    assert (case.best.before, case.best.after, case.best.verdict) == (2.0, 6.0, SLOWER)


def test_layers_are_matched_by_name_and_number_among_equal_names():
    before = replace(report(), layers=(layer("act", 10.0), layer("act", 20.0), layer("old", 1.0)))
    after = replace(report(), layers=(layer("new", 1.0), layer("act", 10.0), layer("act", 10.0)))
    (case,) = compare_reports([before], [after]).cases
    assert [(change.name, change.verdict) for change in case.layers] == [("act", SAME), ("act", FASTER)]
    assert (case.layers_only_before, case.layers_only_after) == (("old",), ("new",))


def test_lists_are_matched_by_model_hardware_batch_and_precision():
    first = [replace(report(), model=name, batch_size=size) for name in "ab" for size in (1, 32)]
    second = [replace(first[3]), replace(first[0], hardware="other"), replace(first[1], precision="float16"), first[2]]
    found = compare_reports(first, second)
    assert [(case.before.model, case.after.batch_size) for case in found.cases] == [("b", 1), ("b", 32)]
    assert found.only_before == ("a on some-gpu, batch 1, float32", "a on some-gpu, batch 32, float32")
    assert found.only_after == ("a on other, batch 1, float32", "a on some-gpu, batch 32, float16")


def test_two_single_reports_are_compared_whatever_they_are_of():
    (case,) = compare_reports([report()], [replace(report(), model="big", hardware="other")]).cases
    assert case.after.model == "big"
    assert case.modes[0].latency.verdict == UNCERTAIN  # errors of two profiles are independent


def test_settings_of_torch_keep_cases_apart():
    plain, under = report(), replace(report(), arithmetic="amp float16")
    found = compare_reports([plain, under], [under])
    assert [case.before.arithmetic for case in found.cases] == ["amp float16"]
    assert found.only_before == ("tiny on some-gpu, batch 2, float32",)
    back = compare_reports([under], [plain, under])
    assert back.only_after == found.only_before
    assert compare_reports([under], [under]).cases[0].best.verdict == SAME


@pytest.mark.parametrize("more", [[], [replace(report(), model="another")]])
def test_reports_under_other_settings_are_refused_with_both(more: list[Report]):
    under = replace(report(), arithmetic="amp float16")
    line = "tiny is predicted for torch's default settings in the first file, and for amp float16 in the second"
    with pytest.raises(RequestError, match=line):
        compare_reports([report(), *more], [under])


def test_equal_keys_and_empty_intersections_are_refused():
    with pytest.raises(RequestError, match="two reports of tiny on some-gpu, batch 2, float32 in one file"):
        compare_reports([report(), report()], [report()])
    with pytest.raises(RequestError, match="is in both files"):
        compare_reports([report(), replace(report(), model="b")], [replace(report(), model="c")])


class TestRegressions:
    def test_beyond_the_threshold(self):
        found = compare_reports([report()], [slowed(report(), 1.5)])
        latency, speedup = found.regressions(5.0)
        assert latency.startswith("tiny on some-gpu, batch 2, float32: default latency +50.0% (90 % interval +")
        assert speedup.startswith("tiny on some-gpu, batch 2, float32: default speedup -33.3% (90 % interval -")
        assert found.regressions(40.0) == (latency,)
        assert found.regressions(50.1) == ()

    def test_improvements_are_none(self):
        assert compare_reports([report()], [slowed(report(), 0.5)]).regressions(0.0) == ()

    def test_within_the_interval_are_none(self):
        def of(latency: float) -> Report:
            return replace(report(), modes={"eager": ModePrediction(latency, latency / 2, latency * 2, 1.0, 1.0)})

        found = compare_reports([of(1.0)], [of(1.2)])
        assert found.cases[0].modes[0].latency.verdict == UNCERTAIN
        assert found.regressions(5.0) == ()

    def test_missing_modes_and_cases_count(self):
        lost = replace(report(), modes={"eager": report().modes["eager"]})
        assert compare_reports([report()], [lost]).regressions(1e6) == (
            "tiny on some-gpu, batch 2, float32: no prediction for default",
            "tiny on some-gpu, batch 2, float32: no prediction for reduce-overhead",
        )
        both = [report(), replace(report(), model="b")]
        assert compare_reports(both, both[:1]).regressions(1e6) == (
            "b on some-gpu, batch 2, float32: missing in the second file",
        )
