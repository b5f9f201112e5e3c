"""`costmodel memory`: its report in every format, the command, and its plan."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from memory_rows import Row, accuracy_table, measured_rows
from torch import nn

import costmodel
from costmodel.cli import main
from costmodel.errors import RequestError
from costmodel.memory.analysis import analyze_memory
from costmodel.memory.report import MemoryReport, memory_document, render_memory


@pytest.fixture(scope="module")
def report() -> MemoryReport:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))
    return analyze_memory(
        module.eval(), (torch.empty(4, 3, 8, 8, device="meta"),), hardware="nvidia-h200", optimizer="adam"
    )


class TestReport:
    def test_state_by_hand(self, report: MemoryReport) -> None:
        # blocks: weight 8x3x3x3 -> 1024, bias, weight, bias of norm -> 3 x 512, 512x4 -> 8192, bias -> 512
        assert report.parameter_bytes == 1024 + 3 * 512 + 8192 + 512
        assert report.buffer_bytes == 3 * 512  # mean, variance, count of batches
        assert report.input_bytes == 4 * 3 * 8 * 8 * 4
        assert report.training.optimizer_bytes == 2 * report.parameter_bytes

    def test_feature_maps_by_hand(self, report: MemoryReport) -> None:
        # conv for batch norm, relu for itself and the product: 4 x 8 x 8 x 8 float32; two statistics of batch norm
        kinds = {item.kind: (item.tensors, item.nbytes) for item in report.training.feature_maps}
        assert kinds == {"conv2d": (1, 8192), "relu": (1, 8192), "batch_norm": (2, 1024)}

    def test_inference_peak_by_hand(self, report: MemoryReport) -> None:
        resident = report.parameter_bytes + report.buffer_bytes + report.input_bytes + 32 * 2**20
        assert report.inference.peak_bytes == resident + 2 * 8192
        assert report.inference.graph_pool_bytes == 2 * 2**20

    def test_adam_holds_its_state_and_a_copy_while_it_steps(self, report: MemoryReport) -> None:
        step = report.training
        assert step.peak_bytes >= report.parameter_bytes * (1 + 1 + 2 + 1) + step.workspace_bytes

    def test_json_has_the_sums(self, report: MemoryReport) -> None:
        record = json.loads(render_memory(report, "json"))
        assert record["schema"] == 1
        assert record["input_shape"] == [4, 3, 8, 8]
        assert record["training"]["feature_map_bytes"] == 8192 + 8192 + 1024
        found = record["training"]["recomputation"]
        assert found["saved_bytes"] == found["stashed_before"] - found["stashed_after"]

    def test_csv_has_a_row_a_pass(self, report: MemoryReport) -> None:
        text = render_memory(report, "csv")
        header = text.splitlines()[0].split(",")
        assert len(header) == len(set(header))
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["pass"] for row in rows] == ["inference", "training"]
        assert int(rows[0]["peak_bytes"]) == report.inference.peak_bytes
        assert rows[0]["gradient_bytes"] == ""

    @pytest.mark.parametrize("form", ["table", "md", "html"])
    def test_every_cell_is_in_the_text(self, report: MemoryReport, form: str) -> None:
        text = render_memory(report, form).replace("\\_", "_")
        for section in memory_document(report).sections:
            assert section.title in text
            assert all(cell in text for row in section.cells() for cell in row)

    def test_an_unknown_format_or_optimizer_is_refused(self, report: MemoryReport) -> None:
        with pytest.raises(RequestError, match="unknown format 'xml'"):
            render_memory(report, "xml")
        with pytest.raises(RequestError, match="optimizer must be one of none, sgd, momentum, adam, adamw, not 'sg'"):
            analyze_memory(nn.ReLU(), (torch.empty(1),), optimizer="sg")
        with pytest.raises(
            RequestError, match="passes must be a sequence of some of inference, training, and is empty"
        ):
            analyze_memory(nn.ReLU(), (torch.empty(1),), passes=())


class TestCommand:
    def test_writes_report_and_plan(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        plan = tmp_path / "plan.json"
        arguments = ["memory", "resnet18", "-b", "2", "--img-size", "64", "--training", "--format", "json", "-q"]
        assert main([*arguments, "--hardware", "nvidia-h200", "--save-plan", str(plan)]) == 0
        record = json.loads(capsys.readouterr().out)
        loaded = costmodel.CheckpointPlan.load(plan)
        assert record["inference"] is None
        assert list(loaded.modules) == record["training"]["checkpointing"]["modules"]
        assert loaded.stashed_after < loaded.stashed_before

    def test_a_plan_without_training_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["memory", "resnet18", "--inference", "--save-plan", str(tmp_path / "plan.json")]) == 2
        assert "leave out --inference or --save-plan" in capsys.readouterr().err


class TestAccuracy:
    def test_errors_by_hand(self) -> None:
        row = Row(
            "net",
            "inference",
            predicted_bytes=110,
            unseen_bytes=105,
            measured_bytes=100,
            state_bytes=60,
            allowance_bytes=0,
        )
        assert row.error == pytest.approx(0.1)
        assert row.beyond_state_error == pytest.approx(0.25)  # 50 against 40
        assert "| net | inference | 0.0 | 0.0 | +10.00% | +25.00% | +5.00% | - |" in accuracy_table([row], "cpu", 8)

    def test_a_model_of_torchvision_on_the_cpu(self) -> None:
        inference, training = measured_rows(["squeezenet1_1"], "cpu", 1)
        assert abs(inference.error) < 0.001
        assert abs(training.error) < 0.02


def test_the_main_input_is_that_of_a_prediction() -> None:
    """Token ids come first; the image, channels last, is what both call the input."""

    class Captioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.conv = nn.Embedding(10, 4), nn.Conv2d(3, 4, 3)

        def forward(self, ids: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
            return self.words(ids).sum() + self.conv(image).sum()

    image = torch.empty(2, 3, 8, 8, device="meta").to(memory_format=torch.channels_last)
    inputs = (torch.zeros(2, 5, dtype=torch.int64, device="meta"), image)
    found = analyze_memory(Captioned().to("meta"), inputs, hardware="nvidia-h200")
    report = costmodel.predict(Captioned().to("meta"), inputs, hardware="nvidia-h200")
    for one in (found, report):
        assert (one.input_shape, one.precision, one.layout) == ((2, 3, 8, 8), "float32", "nhwc")
