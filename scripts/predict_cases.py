"""Predicts with the `costmodel` on PYTHONPATH, case by case; scripts/compare_predictions.py runs one for each checkout.

python scripts/predict_cases.py CHECKOUT < cases.jsonl          CHECKOUT is where costmodel must come from

A case is a line of JSON with what to ask, of which model, and the file for the answer. Only public functions are used.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def answer(question: str, spec: str, batch_size: int | None, precision: str, about: dict[str, Any]) -> dict[str, Any]:
    """The answer as JSON's types; an exception is an answer too.

    Args:
        question: the name of a public function.
        spec: of the model, as `load_model` takes it.
        batch_size: images in a pass; None for a model that brings its own inputs.
        precision: of parameters and inputs.
        about: the function's other arguments.
    """
    import costmodel

    try:
        loaded = costmodel.load_model(spec, batch_size=batch_size, precision=precision)
        found: dict[str, Any] = getattr(costmodel, question)(loaded.module, loaded.inputs, **about).to_dict()
    except Exception as error:  # noqa: BLE001 # whatever a checkout raises is to be compared
        return {"error": type(error).__name__, "message": str(error)}
    return found


def main() -> None:
    """Answers every case of standard input, with a line on standard output after each."""
    done = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # where models print to
    import costmodel

    if not Path(costmodel.__file__).resolve().is_relative_to(sys.argv[1]):
        raise SystemExit(f"costmodel is imported from {costmodel.__file__}, not from {sys.argv[1]}")
    for line in sys.stdin:
        case = json.loads(line)
        path = Path(case.pop("path"))
        pending = path.with_suffix(".pending")
        pending.write_text(json.dumps(answer(**case)), encoding="utf-8")
        pending.replace(path)
        print("done", file=done, flush=True)


if __name__ == "__main__":
    main()
