"""README's table of results: figures derived by hand, and README equal to the files."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from tests.support.scripts import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("results")


def test_figures_by_hand(script: ModuleType, tmp_path: Path):
    columns = [f"{kind}speedup/{mode}" for mode in script.MODES for kind in ("", "probed_", "measured_")]
    header = "model,family,batch_size,precision,layout," + ",".join(columns)
    rows = ["a,a,1,float32,nchw,1.2,1.1,1,3,3,2", "b,b,32,float32,nchw,1,2,2,,,"]
    times = [f"{way}{name}_us" for name in ("eager", "graph") for way in ("probed_", "measured_")]
    header, rows = header + "," + ",".join(times), [f"{row},300,200,100,100" for row in rows]
    for name in ("validation.csv", "unseen_h200.csv"):
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
    modes = {"eager": {"measured_ms": 4.0}, "default": {"measured_ms": 2.0}, "plan": {"measured_ms": 1.0}}
    records = [{"case": ["a", 1, "float32"], "modes": modes}]
    records.append({"case": ["b", 1, "float16"], "modes": {**modes, "plan": {"measured_ms": 0.25}}})
    for name in ("compared", "others"):
        (tmp_path / f"{name}_h200.jsonl").write_text("\n".join(map(json.dumps, records)))
    expert = ["model,batch_size,precision,setting,median_ms", *(f"a,1,{line}" for line in EXPERT)]
    (tmp_path / "expert_h200.csv").write_text("\n".join(expert))
    memory = [memory_row("inference", 90), memory_row("inference", 103), memory_row("training", 108)]
    (tmp_path / "memory_h200.json").write_text(json.dumps({"rows": memory}))
    cost = {"runs": 3, "predict densenet121": {"ratio": 1.25, "peak_ratio": 1.126}}
    (tmp_path / "speed.json").write_text(json.dumps(cost))
    (tmp_path / "sweep_h200.json").write_text(json.dumps({"ratio": 5.55, "sample": {"units": 4000}}))
    hosts = [(machine, "latency", size, share) for machine in "ab" for size, share in ((1, 0.8), (32, 0.9), (8, 0.1))]
    hosts_frame = pd.DataFrame(hosts, columns=["machine", "quantity", "batch_size", "inside"])
    hosts_frame.assign(mode="eager", cases=5).to_csv(tmp_path / "hosts_h200.csv", index=False)
    verdicts = [
        ("a", "compile", True, 1.5),
        ("b", "uncertain", None, 1.2),
        ("c", "leave", False, 1.1),
        ("d", "leave", True, 0.9),
    ]
    user = pd.DataFrame(verdicts, columns=["model", "verdict", "right", "measured_speedup"])
    user.assign(batch_size=1, half="reporting", one_graph=True).to_csv(tmp_path / "user_models_h200.csv", index=False)
    seconds = ["a,cold,11,10,14", "b,cold,12,10,14", "b,cold,13,10,14", "a,warm,1.1,1,2"]
    seconds.insert(0, "model,cache,predicted_s,measured_s,constant_s")
    (tmp_path / "compile_times_h200.csv").write_text("\n".join(seconds))
    text = script.table(tmp_path, tmp_path)
    figures = [line.split(" | ")[1:] for line in text.splitlines()[2:]]
    assert figures[0] == ["hold 80 % to 90 %", "-", "20 latencies on 2 machines |"]
    assert figures[1] == figures[2] == ["75 % decided, 67 % of them right", "always `compile`: 75 % right", "4 |"]
    figures = figures[3:]
    held_out = [
        [
            "35.0 % mean error, 0 % within 10 %",
            "75.0 %",
            "2 measurements |",
        ],  # 20 and 50 %; each other's: 2 for 1, 1 for 2
        ["50.0 % mean error, 0 % within 10 %", "50.0 %", "1 measurements |"],  # no other family: 1 for 2
        ["5.0 % mean error, 50 % within 10 %", "75.0 %", "2 measurements |"],
        ["50.0 % mean error, 0 % within 10 %", "50.0 %", "1 measurements |"],
    ]
    measured_later = [row[:2] for row in held_out]
    assert figures[:2] == held_out[:2]  # uncalibrated hosts first, as users get them
    assert [row[:2] for row in figures[2:4]] == measured_later[:2]
    assert figures[4:6] == held_out[2:]
    assert figures[6][0] == "5.0 % mean error, 50 % within 10 %"
    assert figures[7][0] == "50.0 % mean error, 0 % within 10 %"  # eager 300 for 200 us
    assert [row[:2] for row in figures[8:10]] == measured_later[2:]
    assert figures[10:] == [
        ["4.00 times as fast (geometric mean), at least 2.00", FASTEST, "2 |"],  # 2 / 1 and 2 / 0.25
        ["4.00 times as fast (geometric mean), at least 2.00", FASTEST, "2 |"],
        ["2.00 times as fast (geometric mean), at least 1.00", FROM_EXPERT, "2 |"],  # 4 / 1 and 3 / 3
        ["20.0 % median error", "40.0 %", "3 of 2 models |"],
        ["10.0 % median error", "100.0 %", "1 of 1 models |"],
        ["largest errors 10.0 % and 8.0 %", "-", "3 |"],
        ["1.25 times the CPU time, 1.13 times the peak memory", "importing torch and torchvision", "3 runs |"],
        ["5.5 times the units a minute", "a loop with torch.compile and `do_bench`", "4,000 units |"],
    ]


FASTEST = "fastest of eager, `default`, `reduce-overhead`"
FROM_EXPERT = "fastest of an expert's settings, freezing with CUDA graphs among them"
EXPERT = (
    "float32,eager,9", 'float32,"freezing, tuned",4', "float32,plan,1",
    "float16,reduce-overhead,3", "float16,plan,3",
)  # fmt: skip


def memory_row(kind: str, predicted: int) -> dict[str, object]:
    sizes = {"unseen_bytes": predicted, "measured_bytes": 100, "state_bytes": 1, "allowance_bytes": 0}
    return {"model": "a", "kind": kind, "predicted_bytes": predicted, **sizes}
