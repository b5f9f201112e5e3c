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
