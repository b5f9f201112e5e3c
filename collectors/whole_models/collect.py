"""Latency and compile time of whole models, eager and in torch.compile's modes; calibration and scores use the records.

    python -m collectors.whole_models.collect cases.json models.jsonl --device cuda --seconds 560
    python -m collectors.whole_models.collect cases.json models.jsonl --times 2 --modes default --seconds 560
    python -m collectors.whole_models.collect cases.json compile.jsonl --compile-times --seconds 560

By default parallel processes fill Inductor's cache, then this process alone measures all cases. With `--times N` each
case is measured in N processes of its own, prepared side by side and measured one at a time on each device, with the
host probed between rounds. `--compile-times` measures compilation with an empty and with a filled cache.

Records are appended as they are made; cases that the file holds are not measured again. The environment is kept in a
file beside it, `.env.json`. Records of one `session` were measured in one run on one host.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collectors.processes.environment import environment
from collectors.processes.process import die_with_parent, pinned
from collectors.processes.process_pool import ONE_THREAD, default_processes
from collectors.whole_models.compilation import MODES
from collectors.whole_models.compile_times import compile_times
from collectors.whole_models.own_processes import OwnProcessSettings, latencies
from collectors.whole_models.records import Record, RecordFile, open_records, record_key
from collectors.whole_models.shared_process import SharedProcessSettings, measure_here
from collectors.whole_models.timing import RoundSettings
from collectors.workloads.model_cases import WholeModelCase
from costmodel.errors import CostmodelError, RequestError
from costmodel.measurement.cpu_determinism import make_cpu_deterministic


@dataclass(frozen=True, slots=True)
class WholeModelSettings:
    """Settings of a collection of whole models.

    Attributes:
        devices: `cpu`, `cuda` or `cuda:N`; several of one kind are used side by side by processes of their own.
        seconds: time budget.
        modes: modes of torch.compile to measure.
        compile_times: measure compile times instead of latencies.
        retry: measure cases again that failed before.
        shared: settings of the process that measures all cases.
        own: settings of processes that measure one case each; None to measure all cases in this process.
    """

    devices: tuple[str, ...] = ("cuda",)
    seconds: float = 560.0
    modes: tuple[str, ...] = tuple(MODES)
    compile_times: bool = False
    retry: bool = False
    shared: SharedProcessSettings = field(default_factory=SharedProcessSettings)
    own: OwnProcessSettings | None = None


def print_line(record: Record) -> None:
    """Print one line about a record."""
    print(describe(record), flush=True)


def collect(
    cases: Sequence[WholeModelCase],
    out: Path,
    settings: WholeModelSettings,
    report: Callable[[Record], None] = print_line,
) -> None:
    """Measure the cases that `out` does not hold, until all are done or the time is up.

    Args:
        cases: cases to measure.
        out: file of records.
        settings: devices, time budget, processes.
        report: receives each record.

    Raises:
        RequestError: a device has an impossible name.
        DatasetError: `out` was begun in another environment.
    """
    end = time.monotonic() + settings.seconds
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))
    for device in settings.devices:
        pinned(device)  # an impossible name is refused before anything is measured
    if settings.own is not None and not settings.compile_times:
        os.environ.update(ONE_THREAD)
    if settings.own is None:
        os.environ.update(pinned(settings.devices[0])[0])  # before CUDA is first used
    visible = settings.devices[0] if settings.own else pinned(settings.devices[0])[1]
    records = open_records(out, environment(visible), settings.retry)
    numbered = settings.own is not None and not settings.compile_times
    for record in _measured(cases, records, settings, end):
        records.add(record, numbered)
        report(record)


def _measured(
    cases: Sequence[WholeModelCase], records: RecordFile, settings: WholeModelSettings, end: float
) -> Iterator[Record]:
    """Records of the cases, as the settings say."""
    done, devices, modes = dict(records.counts), settings.devices, settings.modes
    if settings.own is None:
        variables, name = pinned(devices[0])
        keys = {key for key, count in done.items() if count}
        seconds = end - time.monotonic()
        return measure_here(cases, keys, name, modes, settings.shared, seconds, variables)
    if settings.compile_times:
        return compile_times(cases, done, devices, modes, settings.own, end)
    return latencies(cases, done, devices, modes, settings.own, end)


def describe(record: Record) -> str:
    """One line about a record: median latency of each round, compile times, or the error."""
    name = record_key(record)
    if "error" in record:
        return f"failed: {name}: {record['error'][:200]}"
    if "cold" in record:
        return f"{name}: cold {sum(record['cold']['calls_s']):.2f} s, warm {sum(record['warm']['calls_s']):.2f} s"
    rounds = record.get("latency_us", {})
    parts = [f"{call} {statistics.median(row[2] for row in rows) / 1e3:.3f} ms" for call, rows in rounds.items()]
    probe = [f"launch {record['probe_us']:.1f} us"] if "probe_us" in record else []
    breaks = [f"{count} graph breaks in {mode}" for mode, count in record.get("graph_breaks", {}).items()]
    return f"{name}: {', '.join([*parts, *probe, *breaks])}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="JSON list of cases")
    parser.add_argument("out", type=Path, help="records, JSON lines")
    parser.add_argument(
        "--device", nargs="+", default=("cuda",), help="cpu, cuda or cuda:N; several with --times or --compile-times"
    )
    parser.add_argument("--seconds", type=float, default=560, help="time budget")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=tuple(MODES), help="of torch.compile")
    parser.add_argument("--retry", action="store_true", help="measure cases again that failed")
    parser.add_argument("--times", type=int, default=0, help="measure each case in so many processes of its own")
    parser.add_argument("--compile-times", action="store_true", help="cold and warm compile times, not latencies")
    parser.add_argument("--processes", type=int, default=default_processes(), help="that compile or prepare at once")
    parser.add_argument("--compile-share", type=float, default=0.45, help="share of the time for filling the cache")
    parser.add_argument("--cases-at-once", type=int, default=60, help="cases to take, without --times")
    parser.add_argument("--no-device", action="store_true", help="leave device times out")
    parser.add_argument("--cold", type=int, default=0, help="also cold compile times of so many cases, the first ones")
    parser.add_argument("--held", type=int, default=24, help="processes prepared before measuring begins")
    parser.add_argument("--kernels", action="store_true", help="with --times, also host and device time of each call")
    parser.add_argument(
        "--rounds", type=int, default=RoundSettings().rounds, help="rounds of calls in turn, with --times"
    )
    ready_s = OwnProcessSettings().ready_s
    parser.add_argument(
        "--ready-seconds", type=float, default=ready_s, help="deadline of preparing a case, with --times"
    )
    parser.add_argument("--launch-us", type=float, help="keep no record of a host that needs longer for a launch")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    return parser


def _settings(args: argparse.Namespace) -> WholeModelSettings:
    shared = SharedProcessSettings(args.compile_share, args.processes, args.cases_at_once, args.no_device, args.cold)
    own = None
    if args.times or args.compile_times:
        rounds = RoundSettings(args.rounds, kernels=args.kernels)
        own = OwnProcessSettings(
            times=max(1, args.times),
            processes=args.processes,
            held=args.held,
            ready_s=args.ready_seconds,
            launch_us=args.launch_us,
            rounds=rounds,
        )
    elif len(args.device) > 1:
        raise RequestError("several devices are used by processes of their own only; give --times or --compile-times")
    devices, modes = tuple(args.device), tuple(args.modes)
    return WholeModelSettings(devices, args.seconds, modes, args.compile_times, args.retry, shared, own)


def main() -> None:
    """Measure the cases of a JSON file."""
    parser = _parser()
    args = parser.parse_args()
    if args.parent is not None:
        die_with_parent(args.parent)
    make_cpu_deterministic(args.device[0])
    try:
        collect(json.loads(args.cases.read_text()), args.out, _settings(args))
    except (CostmodelError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
