"""Rank correlation of predicted speedups with those that timm publishes for three GPUs, under autocast in float16.

python scripts/check_against_timm.py --predict                     predict the models that have no prediction yet
python scripts/check_against_timm.py --worst 20                    the models that are ranked most differently
python scripts/check_against_timm.py --write docs/accuracy.md      the table, into the document

The throughputs in docs/data/timm_speedups.csv are facts from `results/` of pytorch-image-models (Apache-2.0):
benchmark-infer-amp-nchw-pt291-*, with and without dynamo, torch 2.9.1, `torch.backends.cudnn.benchmark` on.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from markdown_tables import markdown_table, percent, replace_section
from torch import nn

import costmodel
from costmodel import zoo
from costmodel.errors import CostmodelError
from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.progress import tracked
from costmodel.training.families import family_of

DATA = Path(__file__).parent.parent / "docs" / "data"
MEASURED, PREDICTED = DATA / "timm_speedups.csv", DATA / "timm_predicted_h200.csv"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that timm measured on.

    Attributes:
        name: as in the table.
        bandwidth: of its memory as published, GB/s.
    """

    name: str
    bandwidth: int


GPUS = {
    "rtx_5090": Gpu("RTX 5090", 1792),
    "rtx_pro_6000": Gpu("RTX PRO 6000 Max-Q", 1792),
    "rtx_4090": Gpu("RTX 4090", 1008),
}
"""Prefix of a GPU's columns in MEASURED -> the GPU."""
BANDWIDTHS = tuple(dict.fromkeys(gpu.bandwidth for gpu in GPUS.values()))
MODES = ("eager", "default")
HARDWARE = "nvidia-h200"
BATCH_SIZE = 1024
"""Batch size of predictions, and of most rows of MEASURED."""
GAIN = 1.05
"""Speedup above which compiling gains."""
COLUMNS = (
    *("model", "img_size", "batch_size"),
    *(f"{mode}_ms" for mode in MODES),
    *(f"{mode}_roofline_ms" for mode in MODES),
    *(f"{mode}_{bandwidth}_ms" for bandwidth in BANDWIDTHS for mode in MODES),
    "failure",
)
SEED = 0
MARKS = ("<!-- timm: made by scripts/check_against_timm.py -->", "<!-- end of timm -->")


def predict_one(model: str, img_size: int) -> dict[str, Any]:
    """A row of PREDICTED: latencies and rooflines of both modes, or why the model cannot be predicted."""
    case = {"model": model, "img_size": img_size, "batch_size": BATCH_SIZE}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = zoo.load(f"timm:{model}", batch_size=BATCH_SIZE, img_size=img_size)
            module = reparameterized(loaded.module)
            report = costmodel.predict(module, loaded.inputs, amp="float16", hardware=HARDWARE, check=False)
    except CostmodelError as error:
        return case | {"failure": str(error).splitlines()[0]}
    times: dict[str, Any] = {}
    for name in MODES:
        mode = report.modes[name]
        times |= {f"{name}_ms": mode.latency_ms, f"{name}_roofline_ms": mode.roofline_ms}
        times |= {f"{name}_{one}_ms": at_bandwidth_ms(report.kernels[name], one) for one in BANDWIDTHS}
    return case | {name: f"{value:.5g}" for name, value in times.items()}


def at_bandwidth_ms(kernels: Iterable[KernelPrediction], bandwidth: int) -> float:
    """Device time of kernels none of which is faster than its memory traffic at a bandwidth in GB/s."""
    return sum(max(kernel.device_us, kernel.bytes / (bandwidth * 1e3)) for kernel in kernels) / 1e3


def reparameterized(module: nn.Module) -> nn.Module:
    """A model whose parallel branches and batch norms are merged into convolutions, as those were that timm measured.

    Their numbers of parameters in timm's tables show it: 2.08 M for mobileone_s0, which has 5.29 M before.
    """
    from timm.models import reparameterize_model  # after zoo.load, which imports what timm needs

    with torch.device("meta"):
        return reparameterize_model(module, inplace=True).eval()


def predict_missing(measured: pd.DataFrame, path: Path) -> None:
    """Append a row for each measured model that a file lacks, in an order shuffled by a fixed seed."""
    known = set(pd.read_csv(path)["model"]) if path.exists() else set()
    shuffled = measured.sample(frac=1, random_state=SEED)
    cases = zip(shuffled["model"], shuffled["img_size"].tolist(), strict=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for model, img_size in tracked([case for case in cases if case[0] not in known], "predicting model"):
            writer.writerow(predict_one(model, img_size))
            file.flush()


def speedups(measured: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Speedups by model: predicted, of the rooflines, predicted at each GPU's bandwidth, and measured on each GPU.

    A measured speedup is missing where the two runs had different batch sizes, and a model without a prediction is left
    out.
    """
    measured, predicted = measured.set_index("model"), predicted.set_index("model")
    frame = pd.DataFrame(
        {
            "predicted": predicted["eager_ms"] / predicted["default_ms"],
            "roofline": predicted["eager_roofline_ms"] / predicted["default_roofline_ms"],
        }
    )
    for gpu, one in GPUS.items():
        frame[f"{gpu} bandwidth"] = predicted[f"eager_{one.bandwidth}_ms"] / predicted[f"default_{one.bandwidth}_ms"]
        same = measured[f"{gpu}_eager_batch"] == measured[f"{gpu}_dynamo_batch"]
        frame[gpu] = (measured[f"{gpu}_dynamo"] / measured[f"{gpu}_eager"]).where(same)
    return frame.dropna(subset=["predicted"])


def family_medians(speedup: pd.Series) -> pd.Series:
    """Median speedup of the other models of each model's family; of all other models, where the family has no other."""
    families = pd.Series([family_of(str(model)) for model in speedup.index], index=speedup.index)
    medians = {}
    for model in speedup.index:
        others = speedup.drop(model).dropna()
        siblings = others[families[others.index] == families[model]]
        medians[model] = (siblings if len(siblings) else others).median()
    return pd.Series(medians)


def correlation_table(frame: pd.DataFrame) -> str:
    """A column a GPU, a row a way to rank: rank correlations, and in how many models a gain is seen alike.

    Args:
        frame: speedups by model, as `speedups` returns them.
    """
    ranks = frame.assign(**{f"{gpu} family": family_medians(frame[gpu]) for gpu in GPUS})
    correlations = ranks.corr(method="spearman")

    def row(label: str, column: str) -> list[str]:
        names = (column.format(gpu=gpu) for gpu in GPUS)
        pairs = zip(GPUS, names, strict=True)
        return [label, *("-" if gpu == name else f"{correlations[name][gpu]:.2f}" for gpu, name in pairs)]

    known = {gpu: frame.dropna(subset=[gpu]) for gpu in GPUS}
    alike = [((part["predicted"] > GAIN) == (part[gpu] > GAIN)).mean() for gpu, part in known.items()]
    errors = [(part[f"{gpu} bandwidth"] / part[gpu] - 1).abs().mean() for gpu, part in known.items()]
    rows = [
        row(f"predicted for `{HARDWARE}`", "predicted"),
        row("the same at this GPU's bandwidth", "{gpu} bandwidth"),
        row("baseline: rooflines of the same kernels", "roofline"),
        row("baseline: median of the family's other models on this GPU", "{gpu} family"),
        *(row(f"measured on {one.name}", gpu) for gpu, one in GPUS.items()),
        ["gain above 5 % predicted and measured alike", *(percent(share, 0) for share in alike)],
        ["mean error of the speedup at this GPU's bandwidth", *(percent(error) for error in errors)],
        ["median speedup", *(f"{part[gpu].median():.2f}" for gpu, part in known.items())],
        ["models", *(str(len(part)) for part in known.values())],
    ]
    return markdown_table(("ranked by", *(one.name for one in GPUS.values())), rows)


def disagreements(frame: pd.DataFrame) -> pd.DataFrame:
    """Models by difference of rank, from 0 to 1, between the prediction and the mean of the GPUs; largest first.

    A positive difference is a model that is predicted to gain more than it does.
    """
    ranks = frame.rank(pct=True)
    difference = ranks["predicted"] - ranks[list(GPUS)].mean(axis=1)
    return frame.assign(difference=difference).sort_values("difference", key=abs, ascending=False)


def main() -> None:
    """Predict, or print the table or write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help=f"append the missing predictions to {PREDICTED.name}")
    parser.add_argument("--worst", type=int, metavar="N", help="print the N models that are ranked most differently")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    measured = pd.read_csv(MEASURED)
    if args.predict:
        predict_missing(measured, PREDICTED)
    predicted = pd.read_csv(PREDICTED)
    frame = speedups(measured, predicted)
    if args.worst:
        print(disagreements(frame).head(args.worst).round(2).to_string())
        return
    text = correlation_table(frame)
    print(text)
    for _, failed in predicted.dropna(subset=["failure"]).iterrows():
        print(f"{failed['model']}: {failed['failure']}")
    if args.write:
        args.write.write_text(replace_section(args.write, text, *MARKS), encoding="utf-8")


if __name__ == "__main__":
    main()
