"""Kernels that a profile had never measured, as it predicts them; docs/accuracy.md's tables are those of the files."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from costmodel.hardware import shipped_directory
from costmodel.scores import replace_section
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent
SHIPPED = shipped_directory() / "amd-epyc-2-threads"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("blind_kernels")


def test_only_kernels_that_the_older_profile_never_measured_are_predicted(script: ModuleType, tmp_path: Path):
    for name in ("card.json", "predictor.safetensors"):
        (tmp_path / name).symlink_to(SHIPPED / name)
    units = pd.read_parquet(SHIPPED / "units.parquet")
    units = units[(units["status"] == "ok") & (units["unit"] == "")].head(300)
    units.iloc[40:].to_parquet(tmp_path / "units.parquet")
    units.to_parquet(tmp_path / "newer.parquet")
    frame = script.predict_new(tmp_path, tmp_path / "newer.parquet")
    np.testing.assert_array_equal(frame["measured_us"], units["device_us_p50"].head(40))
    assert (frame["us"] / frame["measured_us"] - 1).abs().median() < 0.02  # this predictor knows them
    assert frame["us"].between(frame["low_us"], frame["high_us"]).all()
    multiples = (frame["constant_us"] / frame["bound_us"]).groupby(frame["group"])
    np.testing.assert_allclose(multiples.max(), multiples.min())  # one of each group


def test_errors_by_hand(script: ModuleType):
    rows = [
        ("conv", 10.0, 11.0, 10.5, 12.0, 5.0),  # 10 % off, below its interval
        ("conv", 10.0, 13.0, 9.0, 14.0, 15.0),
        ("gemm", 4.0, 4.0, 3.0, 5.0, 4.0),
    ]
    frame = pd.DataFrame(rows, columns=["group", "measured_us", "us", "low_us", "high_us", "constant_us"])
    assert script.table_markdown(script.score(frame)).splitlines()[2:] == [
        "| conv | 2 | 20.0 % | 20.0 % | 50.0 % | 50.0 % |",
        "| gemm | 1 | 0.0 % | 0.0 % | 100.0 % | 0.0 % |",
    ]


@pytest.mark.parametrize("section", ["blind kernels", "float16 kernels"])
def test_the_tables_on_the_page_are_those_of_the_files(script: ModuleType, section: str):
    page = ROOT / "docs" / "accuracy.md"
    table = script.table_markdown(pd.read_csv(ROOT / "docs" / f"{section.replace(' ', '_')}_h200.csv"))
    assert replace_section(page, table, *script.marks(section)) == page.read_text(encoding="utf-8")
