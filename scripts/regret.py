"""What plans lose by being chosen from predictions: regret against plans chosen from measured kernel times.

python scripts/regret.py -o docs/regret.json              the twelve models, batch 1 and 32, float32 and float16
python scripts/regret.py -o docs/regret.json --no-compute --write docs/plans.md

Every way to run every block is priced twice: by a predictor that has seen neither these kernels nor the model's family,
and as measured, where the profile's dataset holds the very kernel (how much of the time that is, is told; the rest is
predicted in both). The oracle decides with either; both plans are then priced as measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from joblib import Parallel, delayed
from tqdm import tqdm

from collectors.cases import write_whole
from costmodel.comparison import MODELS
from costmodel.dataset import kernel_of, read_frame
from costmodel.evaluate import fit_without, table_origins
from costmodel.exact import capture_exactly
from costmodel.features import OPTIONAL
from costmodel.freeze import freeze
from costmodel.hardware import Profile, load_profile
from costmodel.ir import Graph
from costmodel.kernels import Kernel
from costmodel.measured import family_of
from costmodel.moves import rewrite
from costmodel.plan import Plan
from costmodel.planner import START_US, make_plan, reprice
from costmodel.predictor import Estimate, Predictor
from costmodel.prices import kernels_of
from costmodel.scores import markdown_table, percent, replace_section
from costmodel.train import Settings, drop, tabulate, trusted
from costmodel.zoo import load

SETTINGS = ((1, "float32"), (32, "float32"), (1, "float16"), (32, "float16"))
BEGIN, END = "<!-- regret: made by scripts/regret.py -->", "<!-- end of regret -->"

Key = tuple[str, str]
"""What makes a kernel the same as another: `Kernel.key`."""


@dataclass(frozen=True, slots=True)
class Measured(Predictor):
    """A predictor that tells a kernel's measured time where there is one, and remembers what it was asked for."""

    times: Mapping[Key, float]
    asked: set[Key]

    def predict(self, kernels: Sequence[Kernel], positions: Sequence[float]) -> list[Estimate]:
        """The measured time of each kernel, or else the predicted one; microseconds."""
        predicted = Predictor.predict(self, kernels, positions)
        self.asked.update(kernel.key for kernel in kernels)
        pairs = zip(kernels, predicted, strict=True)
        return [replace(estimate, us=self.times.get(kernel.key, estimate.us)) for kernel, estimate in pairs]


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


def regrets_of(family: str, models: Sequence[str], hardware: str) -> list[Regret]:
    """The models of one family, planned twice in every setting."""
    profile = load_profile(hardware)
    frame = trusted(read_frame(profile.path / "units.parquet")[0])
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    times = {kernel.key: float(us) for kernel, us in zip(kernels, frame["device_us_p50"], strict=True)}
    graphs = {}
    for model in models:
        for batch_size, precision in SETTINGS:
            loaded = load(model, batch_size=batch_size, precision=precision)
            graphs[model, batch_size, precision] = capture_exactly(loaded.module, loaded.inputs, model).graph
    of = profile.predictor
    spy = Measured(of.groups, of.roofline, of.multiprocessors, times, set())
    for graph in graphs.values():
        make_plan(graph, profile.using(spy), {}, "")
    tables = tabulate(kernels, frame, of.roofline, of.multiprocessors)
    tables = {group: drop(table, OPTIONAL) for group, table in tables.items()}
    origins = table_origins(kernels, frame["source"].tolist())
    unaware = fit_without(spy.asked, {family}, tables, origins, of, Settings())
    measured = Measured(unaware.groups, unaware.roofline, unaware.multiprocessors, times, set())
    return [_regret(case, graph, profile.using(unaware), profile.using(measured)) for case, graph in graphs.items()]


def _regret(case: tuple[str, int, str], graph: Graph, unaware: Profile, measured: Profile) -> Regret:
    from_predictions, from_measurements = (make_plan(graph, one, {}, "") for one in (unaware, measured))
    priced = reprice(from_predictions, graph, measured)
    best = reprice(from_measurements, graph, measured)
    took = [round(1e3 * plan.latency_ms["plan"] - START_US, 2) for plan in (priced, best)]
    return Regret(*case, *took, known=round(known_share(priced, graph, measured), 4))


def known_share(plan: Plan, graph: Graph, profile: Profile) -> float:
    """Share of a plan's time that is of measured kernels."""
    predictor = profile.predictor
    assert isinstance(predictor, Measured)
    main = freeze(rewrite(graph, plan.moves)).main
    kernels = [kernel for region in plan.regions for kernel in kernels_of(main, region.ops, region.backend)]
    times = [estimate.us for estimate in predictor.predict(kernels, [0.5] * len(kernels))]
    measured = [us for us, kernel in zip(times, kernels, strict=True) if kernel.key in predictor.times]
    return sum(measured) / sum(times)


def regret_markdown(found: Iterable[Regret]) -> str:
    """The table: a line a setting."""
    rows = []
    found = list(found)
    for batch_size, precision in SETTINGS:
        of = [one for one in found if (one.batch_size, one.precision) == (batch_size, precision)]
        if not of:
            continue
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
    parser.add_argument("--jobs", type=int, default=2, help="families at once; each trains a predictor of its own")
    parser.add_argument("-o", "--output", type=Path, default=Path("regret.json"))
    parser.add_argument("--no-compute", action="store_true", help="only show what the file holds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there")
    args = parser.parse_args()
    if args.no_compute:
        found = [Regret(**row) for row in json.loads(args.output.read_text(encoding="utf-8"))]
    else:
        families: dict[str, list[str]] = {}
        for model in args.models:
            families.setdefault(family_of(model), []).append(model)
        jobs = Parallel(n_jobs=args.jobs, return_as="generator")(
            delayed(regrets_of)(family, models, args.hardware) for family, models in families.items()
        )
        found = [one for several in tqdm(jobs, total=len(families), unit="family") for one in several]
        write_whole(args.output, json.dumps([asdict(one) for one in found], indent=1) + "\n")
    table = regret_markdown(found)
    print(table)
    if args.write:
        args.write.write_text(replace_section(args.write, table, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
