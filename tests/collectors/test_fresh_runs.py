import time

from collectors.whole_models.fresh_case import Job
from collectors.whole_models.fresh_runs import Limits, interleaved, run_latency

ENDS = """
import os, time
def late(batch): time.sleep(1000)
def killed(batch): os.kill(os.getpid(), 11)
def wrong(batch): raise ValueError("no such weights")
"""


def job(model: str, batch_size: int = 1) -> Job:
    return Job(model, batch_size, ("default",), "cpu", "latency", 0.01, 1)


def test_a_cut_run_has_done_the_same_share_of_each_group():
    many, few = [job("many", index) for index in range(8)], [job("few", index) for index in range(4)]
    half = interleaved([many, few])[:6]
    assert [one.model for one in half].count("many") == 4
    assert [one.batch_size for one in half if one.model == "few"] == [0, 1]


def test_every_end_of_a_process_is_a_record(tmp_path):
    file = tmp_path / "ends.py"
    file.write_text(ENDS)
    jobs = [job(f"{file}:{name}") for name in ("late", "killed", "wrong")]
    limits = Limits(ready_s=25.0, measure_s=5.0, processes=3, held=3, end=time.monotonic() + 120.0)
    late, killed, wrong = [record for records in run_latency(jobs, limits) for record in records]
    assert (late["status"], late["step"]) == ("timeout", "preparing")
    assert killed["status"] == "killed by SIGSEGV"
    assert (wrong["status"], wrong["error"]) == ("error", "ValueError: no such weights")
    assert {record["mode"] for record in (late, killed, wrong)} == {"default"}


def test_nothing_begins_after_the_end():
    assert not list(run_latency([job("resnet18")], Limits(1.0, 1.0, 1, 1, time.monotonic())))
