"""What plans lose by being chosen from predictions: regret against plans chosen from measured kernel times.

python scripts/regret.py -o docs/regret.json              the twelve models, batch 1 and 32, float32 and float16
python scripts/regret.py -o docs/regret.json --no-compute --write README.md

Every way to run every block is priced twice: as predicted, and as measured, where the profile's dataset holds the very
kernel (how much of the time that is, is told). The oracle decides with either; both plans are then priced as measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from tqdm import tqdm

from collectors.cases import Case, write_whole
from costmodel.dataset import read_frame
from costmodel.exact import capture_exactly
from costmodel.freeze import freeze
from costmodel.hardware import Profile, load_profile
from costmodel.ir import Graph
from costmodel.kernels import Kernel
from costmodel.moves import rewrite
from costmodel.plan import Plan
from costmodel.planner import START_US, make_plan, reprice
from costmodel.predictor import Estimate, Predictor, load_predictor
from costmodel.prices import kernels_of
from costmodel.scores import markdown_table, percent, replace_section
from costmodel.train import trusted
from costmodel.zoo import load

MODELS = (
    *("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1"),
    *("vgg16_bn", "resnet18", "efficientnet_b0", "convnext_tiny", "vit_b_16", "inception_v3"),
)
BEGIN, END = "<!-- regret: made by scripts/regret.py -->", "<!-- end of regret -->"


@dataclass(frozen=True, slots=True)
class Measured(Predictor):
    """A predictor that tells a kernel's measured time where there is one."""

    times: Mapping[str, float]

    def predict(self, kernels: Sequence[Kernel], positions: Sequence[float]) -> list[Estimate]:
        """The measured time of each kernel, or else the predicted one; microseconds."""
        predicted = Predictor.predict(self, kernels, positions)
        pairs = zip(kernels, predicted, strict=True)
        return [replace(estimate, us=self.times.get(key_of(kernel), estimate.us)) for kernel, estimate in pairs]


@dataclass(frozen=True)
class MeasuredProfile(Profile):
    """A profile that knows the very times in its dataset."""

    @cached_property
    def predictor(self) -> Measured:  # type: ignore[override]
        """The profile's predictor, and what was measured."""
        frame = trusted(read_frame(self.path / "units.parquet")[0])
        times = dict(zip(frame["key"], frame["device_us_p50"].astype(float), strict=True))
        of = load_predictor(self.path / "predictor.safetensors")
        return Measured(of.groups, of.roofline, of.multiprocessors, times)


@dataclass(frozen=True, slots=True)
class Regret:
    """One case: device time of the plans chosen from predictions and from measurements, both priced as measured.

    Attributes:
        model: a spec of costmodel.zoo.
        batch_size: images in a pass.
        precision: of parameters and inputs.
        predicted_us: chosen from predictions.
        measured_us: chosen from measurements.
        known: share of the first plan's time whose kernels were measured.
    """

    model: str
    batch_size: int
    precision: str
    predicted_us: float
    measured_us: float
    known: float

    @property
    def regret(self) -> float:
        """How much longer the plan chosen from predictions takes: 0.01 is one percent."""
        return self.predicted_us / self.measured_us - 1


def key_of(kernel: Kernel) -> str:
    """Under which a dataset keeps a kernel."""
    runner, graph = kernel.key
    return Case(graph, runner).key  # type: ignore[arg-type]


def regret_of(model: str, batch_size: int, precision: str, hardware: str) -> Regret:
    """One model planned twice."""
    profile = load_profile(hardware)
    measured = MeasuredProfile(profile.name, profile.path, profile.card)
    loaded = load(model, batch_size=batch_size, precision=precision)
    graph = capture_exactly(loaded.module, loaded.inputs, model).graph
    from_predictions, from_measurements = (make_plan(graph, one, {}, "") for one in (profile, measured))
    priced = reprice(from_predictions, graph, measured)
    return Regret(
        model,
        batch_size,
        precision,
        *(round(1e3 * plan.latency_ms["plan"] - START_US, 2) for plan in (priced, from_measurements)),
        known=round(known_share(priced, graph, measured), 4),
    )


def known_share(plan: Plan, graph: Graph, profile: MeasuredProfile) -> float:
    """Share of a plan's time that is of measured kernels."""
    main = freeze(rewrite(graph, plan.moves)).main
    kernels = [kernel for region in plan.regions for kernel in kernels_of(main, region.ops, region.backend)]
    times = [estimate.us for estimate in profile.predictor.predict(kernels, [0.5] * len(kernels))]
    measured = [us for us, kernel in zip(times, kernels, strict=True) if key_of(kernel) in profile.predictor.times]
    return sum(measured) / sum(times)


def regret_markdown(found: Sequence[Regret]) -> str:
    """README's table: a line a setting."""
    rows = []
    for batch_size, precision in dict.fromkeys((one.batch_size, one.precision) for one in found):
        of = [one for one in found if (one.batch_size, one.precision) == (batch_size, precision)]
        worst = max(of, key=lambda one: one.regret)
        known = percent(statistics.mean(one.known for one in of))
        mean = percent(statistics.mean(one.regret for one in of))
        largest = f"{percent(worst.regret)} ({worst.model})"
        rows.append([f"{batch_size}, {precision}", str(len(of)), known, mean, largest])
    return markdown_table(("batch, precision", "models", "time measured", "mean regret", "largest"), rows)


def main() -> None:
    """Plans every model twice, then writes the file and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("-o", "--output", type=Path, default=Path("regret.json"))
    parser.add_argument("--no-compute", action="store_true", help="only show what the file holds")
    parser.add_argument("--write", type=Path, metavar="README.md", help="put the table there")
    args = parser.parse_args()
    if args.no_compute:
        found = [Regret(**row) for row in json.loads(args.output.read_text(encoding="utf-8"))]
    else:
        cases = [(m, b, p) for p in ("float32", "float16") for b in (1, 32) for m in args.models]
        found = [regret_of(*case, args.hardware) for case in tqdm(cases)]
        write_whole(args.output, json.dumps([asdict(one) for one in found], indent=1) + "\n")
    table = regret_markdown(found)
    print(table)
    if args.write:
        args.write.write_text(replace_section(args.write, table, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
