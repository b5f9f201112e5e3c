"""JSON schema of the output of `costmodel predict --format json`, made from the record types of a report."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from costmodel.report.types import EAGER, EAGER_KEYS, SCHEMA, SCHEMA_ID, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOT_IN_JSON = ("kernels", "modules")
"""Fields of a report that the JSON leaves out."""
OPTIONAL = ("explanation", "arithmetic", "training")
"""Keys that a report may lack."""

Record = dict[str, Any]


def predict_schema() -> Record:
    """Schema of one report, or of a list of reports.

    Keys beyond those listed are allowed, as later versions may add some under the same number. Numbers are finite.
    """
    (report,), records = msgspec.json.schema_components([Report], ref_template="#/$defs/{name}")
    definitions = {name: _completed(record) for name, record in records.items()}
    definitions["EagerPrediction"] = _eager(definitions["ModePrediction"])
    properties = {key: of for key, of in definitions["Report"]["properties"].items() if key not in NOT_IN_JSON}
    properties["modes"] |= {"properties": {EAGER: {"$ref": "#/$defs/EagerPrediction"}}, "required": [EAGER]}
    definitions["TrainingPrediction"] = _without(definitions["TrainingPrediction"], "layers")
    definitions["LayerPrediction"]["properties"] |= definitions["LayerPasses"]["properties"]
    passes = {"enum": ["inference", "training"], "description": "What is predicted."}
    added = {"$schema": {"const": SCHEMA_ID}, "schema": {"const": SCHEMA}, "pass": passes}
    definitions["Report"]["properties"] = added | properties
    keys = [*added, *(key for key in properties if key not in OPTIONAL)]
    definitions["Report"]["required"] = keys
    text = json.dumps([report, definitions])
    used = {name: record for name, record in definitions.items() if f'"#/$defs/{name}"' in text}
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ID,
        "title": "Output of `costmodel predict --format json`",
        "anyOf": [report, {"type": "array", "items": report}],
        "$defs": used,
    }


def _completed(record: Record) -> Record:
    """A record whose keys are all required and described, and without defaults: the output has every key."""
    about, described = _described(record.get("description", ""))
    properties = {
        key: {name: text for name, text in value.items() if name != "default"}
        | ({"description": described[key]} if key in described else {})
        for key, value in record["properties"].items()
    }
    return {"description": about, "type": "object", "properties": properties, "required": list(properties)}


def _without(record: Record, key: str) -> Record:
    """A record without one of its keys, which the output has elsewhere."""
    properties = {name: of for name, of in record["properties"].items() if name != key}
    return record | {"properties": properties, "required": list(properties)}


def _eager(mode: Record) -> Record:
    """Eager execution's record: without the keys that compare a mode with it."""
    properties = {key: value for key, value in mode["properties"].items() if key in EAGER_KEYS}
    about = "One forward pass of the whole model in eager execution."
    return mode | {"description": about, "properties": properties, "required": list(properties)}


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """Summary of a docstring, and the texts of its `Attributes` by name."""
    summary, _, attributes = docstring.partition("Attributes:\n")
    found = {}
    for names, text in re.findall(r"^ {4,8}([a-z_, ]+): (.*(?:\n {9,}.*)*)", attributes, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return " ".join(summary.split()), found
