"""Errors of a validation, and the layers that it shows, by hand."""

from __future__ import annotations

import pytest

from costmodel.measurement.validation_report import LayerResult, ModeResult, Validation, validation_document
from costmodel.report.prediction_document import TOP_LAYERS


def validation(**fields: object) -> Validation:
    about = ("net", "some-gpu", "Some GPU", (2, 3, 8, 8), "float32")
    return Validation(*about, **({"modes": {"eager": ModeResult(4.0, 5.0)}} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("predicted", "measured", "error"),
    [(6.0, 4.0, 0.5), (3.0, 4.0, -0.25), (4.0, 4.0, 0.0), (None, 4.0, None), (4.0, None, None), (4.0, 0.0, None)],
)
def test_an_error_is_relative_to_what_was_measured(
    predicted: float | None, measured: float | None, error: float | None
):
    assert ModeResult(predicted, measured).error == error
    assert LayerResult("a", "relu", predicted, measured).error == error


def test_a_layer_without_a_prediction_above_zero_has_no_error():
    assert LayerResult("a", "relu", 0.0, 4.0).error is None


def test_the_worst_error_is_that_of_a_speedup_in_either_direction():
    """Predicted to be 2 and 4 times as fast, measured 1.6 and 8 times: a quarter too much, and half too little."""
    modes = {
        "eager": ModeResult(8.0, 99.0),
        "default": ModeResult(4.0, 1.0, speedup=1.6),
        "reduce-overhead": ModeResult(2.0, 1.0, speedup=8.0),
    }
    assert validation(modes=modes).worst_error == pytest.approx(0.5)
    del modes["reduce-overhead"]
    assert validation(modes=modes).worst_error == pytest.approx(0.25)


@pytest.mark.parametrize(
    "mode", [ModeResult(None, 1.0, speedup=1.6), ModeResult(4.0, 1.0), ModeResult(4.0, 1.0, speedup=0.0)]
)
def test_without_a_speedup_on_both_sides_there_is_no_error(mode: ModeResult):
    assert validation(modes={"eager": ModeResult(8.0, 9.0), "default": mode}).worst_error == 0.0
    unknown = {"eager": ModeResult(None, 9.0), "default": ModeResult(4.0, 1.0, speedup=1.6)}
    assert validation(modes=unknown).worst_error == 0.0


def layers(count: int) -> tuple[LayerResult, ...]:
    return tuple(LayerResult(f"l{index}", "relu", 1.0, 1.0 + index % 20) for index in range(count))


@pytest.mark.parametrize(
    ("count", "title"), [(15, "eager layers"), (16, "eager layers: the 15 of 16 that take longest")]
)
def test_at_the_top_are_the_layers_that_take_longest_in_their_order(count: int, title: str):
    assert TOP_LAYERS == 15
    _, section = validation_document(validation(layers=layers(count)), "top").sections
    assert section.title == title
    assert [row[0] for row in section.rows] == [f"l{index}" for index in range(count - 15, count)]
    _, whole = validation_document(validation(layers=layers(count))).sections
    assert (whole.title, len(whole.rows)) == ("eager layers", count)


def test_what_was_not_measured_counts_by_its_prediction():
    found = (LayerResult("a", "relu", 100.0, None), LayerResult("b", "relu", None, None), *layers(16))
    _, section = validation_document(validation(layers=found), "top").sections
    names = [row[0] for row in section.rows]
    assert "a" in names
    assert "b" not in names


def test_sections_are_of_what_was_measured_and_regions_come_first():
    some = layers(1)
    document = validation_document(validation(layers=some, compiled_layers=some, regions=some))
    assert [section.title for section in document.sections] == [
        *("predicted and measured", "regions of the plan, measured alone", "eager layers", "compiled layers"),
    ]
    assert document.title == "net on Some GPU, predicted for some-gpu: input 2x3x8x8, float32"
    assert list(document.notes) == []


def test_notes_name_replaced_regions_and_a_calibrated_host():
    notes = validation_document(validation(replaced=("a", "b"), host_speed=0.8)).notes
    assert list(notes) == [
        "runs eagerly, because its output differs from eager execution: a",
        "runs eagerly, because its output differs from eager execution: b",
        "host calibrated by a probe: 0.80x the speed of the profile's host",
    ]


def test_records_are_of_the_modes_with_their_fields():
    records = validation_document(validation()).records
    assert records.columns[:4] == ["model", "mode", "predicted_ms", "measured_ms"]
    assert [(row["model"], row["mode"], row["measured_ms"]) for row in records.rows] == [("net", "eager", 5.0)]
