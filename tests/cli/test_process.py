"""Guard and standard streams of a command's process, each by itself in a small process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


GUARDED = """
import ctypes, os, signal, sys
from costmodel.cli.guard import guarded
def command():
    {}
    return 1
sys.exit(guarded(command))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="commands are guarded on Linux only")
class TestGuard:
    @pytest.mark.parametrize(
        ("code", "how"),
        [
            ("os._exit(0)", "exit status 0"),
            ("os._exit(7)", "exit status 7"),
            ("ctypes.string_at(0)", "killed by SIGSEGV"),
            ("os.abort()", "killed by SIGABRT"),
            ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
            ("os.kill(os.getpid(), signal.SIGTERM)", "killed by SIGTERM"),
            ("signal.alarm(1); signal.pause()", "killed by SIGALRM"),
        ],
    )
    def test_tells_of_an_end_that_nothing_in_the_process_sees(self, code: str, how: str):
        done = run("-c", GUARDED.format(code))
        assert done.stderr == f"costmodel: error: the process ended before the command was done: {how}\n"
        assert (done.returncode, done.stdout) == (2, "")

    @pytest.mark.parametrize("code", ["pass", "import atexit; atexit.register(os._exit, 9)", "os.fork()"])
    def test_returns_the_status_of_a_command_that_ends(self, code: str):
        done = run("-c", GUARDED.format(code))
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_dies_of_the_signal_that_it_is_sent(self, number: signal.Signals):
        code = GUARDED.format("print('ready', flush=True); signal.pause()")
        inherited = signal.signal(number, signal.SIG_DFL)  # where nohup runs the tests, it is ignored
        try:
            process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        finally:
            signal.signal(number, inherited)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == ""  # nobody holds the pipe: the child is gone, too
        assert process.returncode == -number

    def test_its_child_does_not_outlive_it(self):
        code = GUARDED.format("print('ready', flush=True); signal.pause()")
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=60)[0] == ""


class TestStreams:
    def test_a_descriptor_that_was_closed_and_taken_is_not_written_to(self, tmp_path: Path):
        code = f"""
import os, sys
from costmodel.cli import streams
streams.set_apart()
os.closerange(3, 64)
files = [open({str(tmp_path)!r} + f"/{{number}}", "w") for number in range(8)]
streams.renew()
try:
    streams.write_result("result")
except OSError as error:
    streams.say(error.strerror)
print("aside")
"""
        done = run("-c", code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "Bad file descriptor\naside\n")
        assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}

    def test_a_forked_process_lets_go_of_the_reader(self):
        code = """
import os, signal, sys
from costmodel.cli import streams
streams.set_apart()
child = os.fork()
if child == 0:
    os.close(2), os.close(1)
    signal.pause()
streams.write_result(f"{child}\\n")
"""
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        child = int(process.communicate(timeout=60)[0])  # ends, though the child does not
        os.kill(child, signal.SIGKILL)

    def test_control_characters_of_a_message_are_escaped(self):
        done = run("-c", r"from costmodel.cli import streams; streams.say('a \x1b[2J b\x00\n c')")
        assert done.stderr == "a \\x1b[2J b\\x00 c\n"


class TestTargets:
    def test_standard_output_by_its_name_is_standard_output(self, tmp_path: Path):
        (tmp_path / "all").write_text("before\n")
        with (tmp_path / "all").open("a") as file:
            done = run("-m", "costmodel", "hardware", "-o", "/dev/stdout", stdout=file.fileno())
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "all").read_text().startswith("before\n")
        assert "nvidia-h200" in (tmp_path / "all").read_text()

    @pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
    def test_closed_streams_end_with_status_2(self, closed: str):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "costmodel", "hardware"],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
        said = "" if "2>&-" in closed else "costmodel: error: standard output is closed; give -o FILE\n"
        assert (done.returncode, done.stderr) == (2, said)
