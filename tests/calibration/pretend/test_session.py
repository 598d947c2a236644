"""Commands on pretended GPUs that need no PyTorch: their start, their end and their records."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from calibration.pretend.card import OperatorRates
from calibration.pretend.session import Outcome, Task, run_command
from vdnnsim.errors import InputError
from vdnnsim.hardware.server import Origin

RATES = OperatorRates({"float32": 1e12}, {"float32": 1e12}, 1e12, 1e-6, Origin.ASSUMED)
TASK = Task(10, whole=False, rates=RATES)
RECORD: dict[str, object] = {
    **dict.fromkeys(("gpus", "steps", "out_of_memory", "refused"), ()),
    **dict.fromkeys(("steady_from_step", "step_s")),
    "torch": "2.14.1",
    "operator_s": {},
    "zeros_read": [["train.py:3", 2]],
    "ended": "by itself",
    "error": "",
}


def ran(folder: Path, program: str, limit_s: float = 60.0, **variables: str) -> Outcome:
    return run_command([sys.executable, "-c", program], variables, TASK, limit_s, folder)


def test_command_gets_its_task_and_its_exit_status_is_returned(tmp_path: Path) -> None:
    program = """
import json, os, pathlib, sys
task = json.loads((pathlib.Path(os.environ["VDNNSIM_PRETEND_SESSION"]) / "task.json").read_text())
assert task["steady_steps"] == 10 and task["rates"]["dram_bytes_per_s"] == 1e12, task
sys.exit(int(os.environ["STATUS"]))
"""
    assert ran(tmp_path, program, STATUS="7") == Outcome(7, (), ())


def test_records_of_processes_are_read_by_rank(tmp_path: Path) -> None:
    for process, rank in ((7, 1), (8, 0)):
        (tmp_path / f"snapshot-{process}.pickle").write_bytes(b"%d" % process)
        (tmp_path / f"process-{process}.json").write_text(json.dumps({**RECORD, "process": process, "rank": rank}))
    outcome = ran(tmp_path, "")
    assert [each.process for each in outcome.processes] == [8, 7]
    assert outcome.snapshots == (b"8", b"7")
    assert outcome.processes[0].zeros_read == (("train.py:3", 2),)


def test_time_limit_closes_the_sessions_pipe(tmp_path: Path) -> None:
    """The program waits for the end of a pipe that nobody writes to, and then ends with 5."""
    program = """
import os, pathlib, sys
with (pathlib.Path(os.environ["VDNNSIM_PRETEND_SESSION"]) / "open").open("rb") as pipe:
    pipe.read(1)
sys.exit(5)
"""
    began = time.monotonic()
    assert ran(tmp_path, program, limit_s=1.0).returncode == 5
    assert time.monotonic() - began >= 1.0


def test_a_command_that_ignores_the_time_limit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.pretend.session._GRACE_S", 0.1)
    assert ran(tmp_path, "import time; time.sleep(600)", limit_s=0.5).returncode == -signal.SIGKILL


def test_an_interrupt_is_left_to_the_command(tmp_path: Path) -> None:
    """The command interrupts this process, which goes on waiting for it, and then ends by itself."""
    program = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.2)"
    assert ran(tmp_path, program).returncode == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("")
    with pytest.raises(InputError, match=r"train\.py: cannot be run: permission denied"):
        run_command([str(program)], {}, TASK, 1.0, tmp_path)
