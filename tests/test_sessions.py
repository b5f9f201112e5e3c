"""What sessions were like, told by the models measured in them: made-up models whose latencies are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from costmodel import sessions
from costmodel.calibrate import COSTS, Case
from costmodel.discrepancy import none_found
from costmodel.ir import Calls, parse
from costmodel.kernels import Kernel
from costmodel.measured import Measured
from costmodel.program import Program
from costmodel.sessions import DOUBT, FARTHEST, Fitted
from costmodel.timeline import LAUNCH_COSTS, WALL_COSTS, TimedProgram

RELU = "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"
PROGRAM = Program(
    (Kernel("aten", parse(RELU), ("0",)),), (0.0,), views=0, calls=Calls(modules=1), parameters=0, footprint=512
)
TABLES = {"eager_host": dict.fromkeys(COSTS["eager_host"], 0.0) | {"start": 100.0}}
TABLES |= {"default_host": dict.fromkeys(COSTS["default_host"], 0.0) | {"start": 10.0}}
TABLES |= {"graph_host": dict.fromkeys(COSTS["graph_host"], 0.0) | {"start": 3.0}}
for _way in ("eager", "default"):
    TABLES |= {f"{_way}_device": dict.fromkeys(LAUNCH_COSTS, 0.0), f"{_way}_wall": dict.fromkeys(WALL_COSTS, 0.0)}
# 100 us of host, on a host as fast as the profile's own, and 2 of device after it
EAGER_US = 102.0


def known(program: Program = PROGRAM, device_us: float = 2.0) -> Case:
    timed = TimedProgram(program, [device_us], [5.0])
    return Case(timed, timed, {})


def measured(model: str, session: str, times: float, speed: float = 1.0) -> Measured:
    return Measured(model, 1, "float32", "nchw", {"eager_us": EAGER_US * times}, {"session": session}, speed)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch):
    """Some cases as their sessions are told, where the costs are TABLES whatever is measured."""
    monkeypatch.setattr(sessions.calibrate, "fit_tables", lambda *_: TABLES)
    monkeypatch.setattr(sessions.discrepancy, "fit", lambda _: none_found())
    monkeypatch.setattr(sessions, "ROUNDS", 1)

    def fit(cases: list[Measured], learns: list[bool] | None = None, one: Case | None = None) -> tuple[Case, ...]:
        chosen = np.array(learns if learns else [True] * len(cases))
        probed = [replace(one or known(), host_speed=case.host_speed) for case in cases]
        return sessions.fit(cases, probed, chosen).there

    return fit


@pytest.fixture
def told(there):
    """The speeds of their hosts."""
    return lambda *args, **options: [one.host_speed for one in there(*args, **options)]


def test_a_session_is_as_slow_as_its_models_tell_drawn_towards_its_probe(told):
    cases = [measured(f"m{i}", "monday", 1.1) for i in range(4)] + [measured("other", "tuesday", 1.0)]
    slower = 1.1 ** (4 / (4 + DOUBT))
    assert told(cases) == pytest.approx([1 / slower] * 4 + [1.0])


def test_no_model_tells_more_than_the_farthest(told):
    (speed,) = told([measured("m", "monday", 5.0)])
    assert speed == pytest.approx(math.exp(-FARTHEST / (1 + DOUBT)))


def test_what_is_tested_tells_nothing_but_is_told(told):
    cases = [measured("tested", "monday", 3.0), measured("other", "monday", 1.0), measured("lonely", "sunday", 3.0)]
    assert told(cases, [False, True, False]) == pytest.approx([1.0, 1.0, 1.0])
    cases[1] = measured("other", "monday", 1.1)
    slower = 1.1 ** (1 / (1 + DOUBT))
    assert told(cases, [False, True, False]) == pytest.approx([1 / slower, 1 / slower, 1.0])


def test_models_that_wait_for_the_device_tell_nothing_of_the_host(told):
    assert told([measured("m", "monday", 1.1)], one=known(device_us=500.0)) == [1.0]


def test_the_probe_counts_too(told):
    probed = measured("m", "monday", 100 / 0.8 / EAGER_US + 2 / EAGER_US, speed=0.8)  # as slow as the probe says
    assert told([probed]) == pytest.approx([0.8])


def replayed(model: str, session: str, times: float) -> Measured:
    """A replay takes 3 us of the host and 2 of the device."""
    return Measured(model, 1, "float32", "nchw", {"graph_us": 5.0 * times}, {"session": session})


def test_replays_take_as_long_as_those_of_the_sessions_other_models_tell(there):
    cases = [replayed(f"m{i}", "monday", 1.1) for i in range(3)] + [replayed("tested", "monday", 3.0)]
    longer = 1.1 ** (3 / (3 + DOUBT))
    found = there([*cases, replayed("other", "tuesday", 1.0)], [True, True, True, False, True])
    assert [one.replay for one in found] == pytest.approx([longer] * 4 + [1.0])
    assert [one.host_speed for one in found] == [1.0] * 5  # a replay says nothing of the host
    timings = sessions.timings_there(found[0], TABLES)
    assert timings["reduce-overhead"].latency_us == pytest.approx(5.0 * longer)
    assert timings["eager"].latency_us == pytest.approx(EAGER_US)


def test_a_card_shows_each_session(there):
    cases = [replayed("m", "monday", 1.1), replayed("other", "monday", 1.1), measured("m", "", 1.0, speed=0.5)]
    cases[2].record.pop("session")
    found = Fitted(TABLES, none_found(), there(cases))
    longer, slower = 1.1 ** (2 / (2 + DOUBT)), math.exp(-FARTHEST / (1 + DOUBT))
    assert sessions.describe(cases, found) == [
        {"environment": 0, "session": "", "cases": 1, "host_speed": pytest.approx(0.5 / slower), "replay": 1.0},
        {"environment": 0, "session": "monday", "cases": 2, "host_speed": 1.0, "replay": pytest.approx(longer)},
    ]


def test_a_cpu_is_its_own_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "_told", None)  # is not asked
    monkeypatch.setattr(sessions.calibrate, "fit_tables", lambda *_: TABLES)
    monkeypatch.setattr(sessions.discrepancy, "fit", lambda _: none_found())
    found = sessions.fit([measured("m", "monday", 2.0)], [known()], np.array([True]), on_cpu=True)
    assert found == Fitted(TABLES, found.others, (known(),))


def test_what_is_left_unexplained_by_hand():
    tables = TABLES | {"eager_host": TABLES["eager_host"] | {"start": 10.0}}
    for way in ("eager", "default"):
        tables |= {f"{way}_wall": {"gap": 0.0, "synchronise": 8.0, "late": 0.0}}
    cases = [Measured("alexnet", 1, "float32", "nchw", {"eager_us": 40.0, "graph_us": 10.0}, {}) for _ in range(3)]
    slow = replace(known(), host_speed=0.5)
    found = sessions.unexplained(cases, [known(), known(replace(PROGRAM, fragments=3)), slow], tables)
    # 10 us of host, 20 where it is half as fast, 2 of device, 8 to synchronise
    assert found.logs["eager"] == pytest.approx([math.log(2.0), math.log(2.0), math.log(40 / 30)])
    assert np.isnan(found.logs["default"]).all()
    graph = [math.log(2.0), math.nan, math.log(10 / 8)]  # a pass that was cut is no one CUDA graph
    assert found.logs["reduce-overhead"] == pytest.approx(graph, nan_ok=True)
