"""Models of libraries that torch.compile makes one graph of, for the table that `costmodel predict` ships.

python scripts/one_graph.py torchvision timm hf --jobs 4

Dynamo traces each model in a process of its own, as `costmodel predict` does for a model that is not in the table.
Entries of other releases of torch stay. An interrupted run resumes from its log.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from coverage_survey import SOURCES, names_of

from collectors.processes.process_pool import ONE_THREAD, in_parallel
from costmodel.errors import CostmodelError
from costmodel.files import write_whole
from costmodel.report.progress import progress_bar

TABLE = Path(__file__).parents[1] / "costmodel" / "zoo" / "one_graph.json"
LOG = Path("one_graph.csv")
TIMEOUT_SECONDS = 300.0
WHOLE = "one graph"

TIMM_FAMILIES = """
beit beitv2 cait caformer_s18 coat coatnet convformer_s18 convit convmixer convnext convnextv2 cspdarknet
cspresnet cs3darknet deit deit3 densenet dla dm_nfnet dpn edgenext efficientformer efficientformerv2
efficientnet efficientnetv2 efficientvit eva02 fastvit fbnetc focalnet gcresnet gernet ghostnet ghostnetv2 hgnet
hgnetv2 hiera hrnet inception_next inception_resnet_v2 inception_v3 inception_v4 lcnet legacy_seresnet levit
maxvit mixer mixnet mnasnet mobilenet_edgetpu mobilenetv2 mobilenetv3 mobilenetv4 mobileone mobilevit
mobilevitv2 mvitv2 nasnetalarge nfnet pit poolformer poolformerv2 pnasnet5large pvt_v2 regnetx regnety regnetz
repghostnet repvgg repvit res2net resmlp resnest resnet resnetaa resnetrs resnetv2 resnext rexnet selecsls
semnasnet sequencer2d seresnet seresnext skresnet spnasnet swin swinv2 tf_efficientnet tf_efficientnetv2 tinynet
tiny_vit tnt tresnet twins vgg visformer vit_base vit_small vit_tiny vit_large volo wide_resnet50 xception xcit
"""
"""Families of timm that are used most; a name belongs to the longest that it begins with."""
OF_EACH_FAMILY = 3


def popular_timm_names(names: Iterable[str]) -> list[str]:
    """Specs of the first models, in alphabetical order, of each of the families that are used most."""
    found: dict[str, list[str]] = {}
    for spec in sorted(names):
        name = spec.removeprefix("timm:")
        families = [family for family in TIMM_FAMILIES.split() if name.startswith(family)]
        if families:
            found.setdefault(max(families, key=len), []).append(spec)
    return [spec for specs in found.values() for spec in specs[:OF_EACH_FAMILY]]


def outcome_of(spec: str) -> str:
    """`one graph` for a model that torch.compile compiles once and enters as one graph; else what it makes of it."""
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.zoo import load

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = load(spec)
            graph = capture_with_partition(loaded.module, loaded.inputs, spec)
    except CostmodelError as error:
        return " ".join(str(error).split())
    partition = graph.partition
    if partition is None:
        return "reads values of tensors"
    if partition.failure:
        return partition.failure
    whole = partition.is_whole and partition.compiled == 1 and not partition.reads_kept and not graph.breaks
    return WHOLE if whole else f"{partition.entered} graphs, {partition.compiled} compiled, {len(graph.breaks)} breaks"


def updated(table: dict[str, list[str]], release: str, outcomes: dict[str, str]) -> dict[str, list[str]]:
    """The table with new outcomes for a release of torch; other releases and models not tried stay."""
    known = {spec for spec in table.get(release, ()) if spec not in outcomes}
    known.update(spec for spec, outcome in outcomes.items() if outcome == WHOLE)
    return dict(sorted((table | {release: sorted(known)}).items()))


def read_log(log: Path, release: str) -> dict[str, str]:
    """Outcomes for a release of torch by model; an unfinished last line is ignored."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    rows = csv.reader(text[: text.rfind("\n") + 1].splitlines())
    return {spec: outcome for found, spec, outcome in rows if found == release}


def specs_of(models: Sequence[str]) -> list[str]:
    """Specs of models, or of the default models of a source."""
    found: list[str] = []
    for item in models:
        names: Iterable[str] = names_of(item) if item in SOURCES else (item,)
        found += popular_timm_names(names) if item == "timm" else names
    return list(dict.fromkeys(found))


def main(args: argparse.Namespace) -> None:
    """Try the models that the log lacks; print those that are not one graph."""
    from costmodel.zoo.one_graph import release

    specs, now = specs_of(args.models), release()
    known = read_log(args.log, now)
    missing = [spec for spec in specs if spec not in known]
    done = itertools.count(1)
    with progress_bar() as update:
        for spec, result in in_parallel(outcome_of, missing, args.jobs, math.inf, ONE_THREAD, args.timeout):
            update(next(done), len(missing), "tracing models")
            known[spec] = str(result)
            if isinstance(result, BaseException):
                continue  # it is tried again
            with args.log.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file).writerow((now, spec, result))
            table = json.loads(args.output.read_text(encoding="utf-8")) if args.output.exists() else {}
            write_whole(args.output, json.dumps(updated(table, now, known), indent=1) + "\n")
    for spec in specs:
        if known[spec] != WHOLE:
            print(f"{spec}: {known[spec]}")
    print(f"{sum(known[spec] == WHOLE for spec in specs)} of {len(specs)} models are one graph in torch {now}")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="+", metavar="MODEL", help=f"a source ({', '.join(SOURCES)}) or a model")
parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at once (default: 1)")
parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, metavar="SECONDS", help="for one model")
parser.add_argument("--log", type=Path, default=LOG, help="a line for each model that was tried")
parser.add_argument("-o", "--output", type=Path, default=TABLE, help="the table, which is updated")

if __name__ == "__main__":  # child processes import this file
    main(parser.parse_args())
