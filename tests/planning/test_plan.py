"""Plan files: round trip, and refusal of files that are not plans."""

import json
import pickle
from dataclasses import replace

import pytest

from costmodel.errors import PlanError
from costmodel.ir import parse
from costmodel.planning.plan import Plan, Region, fingerprint

GRAPH = parse("""graph g {
  input %x: float32[2,4]
  %0 = relu(self=%x) : float32[2,4]
  %1 = neg(self=%0) : float32[2,4]
  return %1
}""")
PLAN = Plan(
    model="g",
    graph=fingerprint(GRAPH),
    hardware="nvidia-h200",
    strategy="exact",
    rewrites=("fold_batch_norm",),
    launch="graph",
    regions=(Region("eager", ("0",), ("a",), 1.5, "because"), Region("inductor", ("1",), (), 2.0, stream=1)),
    latency_ms={"eager": 2.0, "plan": 1.0},
    build_s=3.0,
    torch="2.11.0",
    search=True,
    memory_bytes=4096,
)


def test_round_trip(tmp_path):
    PLAN.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_plan_that_lacks_a_field_is_refused(tmp_path):
    (tmp_path / "plan.json").write_text(
        json.dumps({key: value for key, value in PLAN.to_dict().items() if key != "memory_bytes"})
    )
    with pytest.raises(PlanError, match="missing required field memory_bytes"):
        Plan.load(tmp_path / "plan.json")


def test_the_fingerprint_is_of_what_is_computed_and_not_of_the_name():
    assert fingerprint(replace(GRAPH, name="other")) == fingerprint(GRAPH)
    assert fingerprint(parse(str(GRAPH).replace("[2,4]", "[3,4]"))) != fingerprint(GRAPH)
    assert fingerprint(parse(str(GRAPH).replace("float32", "float16"))) != fingerprint(GRAPH)


def test_a_plan_for_another_model_is_refused():
    assert PLAN.check(GRAPH) is PLAN
    with pytest.raises(PlanError, match="make a plan for this model"):
        PLAN.check(parse(str(GRAPH).replace("neg", "abs")))


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        pytest.param((("0",),), "operator 1", id="one is missing"),
        pytest.param((("0",), ("1", "2")), "operator 2", id="one is unknown"),
        pytest.param((("0",), ("1", "0")), "operator 0", id="one is there twice"),
        pytest.param((("1",), ("0",)), "runs operator 1 before its operands", id="the order is wrong"),
    ],
)
def test_regions_that_do_not_fit(regions, message):
    plan = replace(PLAN, regions=tuple(Region("eager", ops, (), 1.0) for ops in regions))
    with pytest.raises(PlanError, match=message):
        plan.check_regions(GRAPH)
    assert PLAN.check_regions(GRAPH) is PLAN


REGION = {"backend": "eager", "ops": ["0"], "layers": [], "us": 1, "why": "", "stream": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "schema 4"),
        ({"schema": 5}, "schema 4"),
        ({"memory_bytes": -1}, "memory_bytes: "),
        ({"memory_bytes": 1.5}, "memory_bytes: "),
        ({"extra": 1}, "unknown field extra; make the plan again"),
        ({"launch": "rocket"}, "launch: "),
        ({"model": 3}, "model: "),
        ({"rewrites": "fold"}, "rewrites: "),
        ({"build_s": float("inf")}, "not a plan: Infinity is not a JSON number"),
        ({"build_s": 10**400}, "not a plan: an integer of 401 digits"),
        ({"build_s": -0.5}, "build_s: "),
        ({"build_s": True}, "build_s: "),
        ({"latency_ms": {"plan": "fast"}}, r"latency_ms\[\.\.\.\]: "),
        ({"regions": {}}, "regions: "),
        ({"regions": [{"backend": "eager"}]}, r"regions\[0\]: object missing required field ops"),
        ({"regions": [REGION | {"backend": "tvm"}]}, r"regions\[0\]\.backend: "),
        ({"regions": [REGION | {"ops": []}]}, r"regions\[0\]\.ops: "),
        ({"regions": [REGION | {"us": -1}]}, r"regions\[0\]\.us: "),
        ({"regions": [REGION | {"stream": -1}]}, r"regions\[0\]\.stream: "),
        ({"search": 1}, "search: "),
    ],
)
def test_a_damaged_plan_is_refused_by_name(tmp_path, change, message):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_dict() | change))
    with pytest.raises(PlanError, match=message) as caught:
        Plan.load(tmp_path / "plan.json")
    assert "\n" not in str(caught.value)


class Trap:
    """Function that unpickling would call."""

    def __reduce__(self):
        return (pytest.fail, ("the file was executed",))


@pytest.mark.parametrize(
    "content",
    [b"", b"[1, 2", b"[1, 2]", b"\xff\xfe", b"[" * 100_000, pickle.dumps(Trap())],
    ids=["empty", "torn", "list", "bytes", "deep", "pickle"],
)
def test_other_files_are_refused_and_never_run(tmp_path, content):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(PlanError, match="not a plan"):
        Plan.load(tmp_path / "plan.json")


def test_missing_files_and_unwritable_places(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "none.json")
    with pytest.raises(PlanError, match="cannot be written"):
        PLAN.save(tmp_path / "no" / "plan.json")
