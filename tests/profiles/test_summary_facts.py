"""Summaries of profiles: facts and headline by hand, whatever a card lacks."""

from __future__ import annotations

import pytest

from costmodel.profiles.summary import summary_document


@pytest.mark.parametrize(
    ("card", "title"),
    [
        ({"environment": {"device": "NVIDIA T4"}}, "mine: profile of NVIDIA T4"),
        ({"environment": {"device": ""}}, "mine"),
        ({"environment": "none"}, "mine"),
        ({}, "mine"),
    ],
)
def test_the_headline_names_the_device_if_it_is_known(card: dict[str, object], title: str):
    assert summary_document("mine", card).title == title


def test_facts_are_in_words():
    card = {
        "environment": {"device": "NVIDIA T4", "torch": "2.13", "cores": 8},
        "roofline": {"bandwidth_gb_s": 320.0, "peak_tflop_s": {"conv.float32": 8.1}},
    }
    facts = dict(summary_document("mine", card).sections[0].rows)
    assert facts["environment"] == "cores 8, torch 2.13"
    assert facts["memory bandwidth"] == "320.0 GB/s"
    assert facts["peak TFLOP/s"] == "conv.float32 8.1"


def test_coverage_counts_every_machine_once_and_comes_before_errors():
    rows = [
        {
            "machine": machine,
            "quantity": "latency",
            "mode": "eager",
            "batch_size": size,
            "cases": cases,
            "inside": share,
        }
        for machine, size, cases, share in (("a", 1, 100, 1.0), ("b", 1, 2, 0.5), ("a", 32, 9, 0.9))
    ]
    scores = {"coverage_by_machine": rows, "latency": [{"mode": "eager", "cases": 5, "mean_error": 0.1}]}
    sections = summary_document("mine", {"scores": scores}).sections
    assert [section.title for section in sections[1:]] == [
        "90 % intervals without --host, on machines left out",
        "accuracy on held-out models",
    ]
    assert list(sections[1].cells()) == [["latency", "eager", "2", "75.0%", "-"]]  # one machine alone proves nothing


def test_errors_without_a_host_come_first():
    models = [{"mode": "default", "cases_of": name, "cases": 3} for name in ("all", "uncalibrated host: all")]
    (_, accuracy) = summary_document("mine", {"scores": {"models": models}}).sections
    assert [row[2] for row in accuracy.rows] == ["all, uncalibrated host", "all"]


def test_damaged_coverage_is_left_out():
    for damaged in ("x", [1], [{"inside": "much"}], [{"batch_size": 1, "inside": None}]):
        document = summary_document("mine", {"scores": {"coverage_by_machine": damaged}})
        assert len(document.sections) == 1
