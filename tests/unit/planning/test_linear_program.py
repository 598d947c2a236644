import ctypes
import os
import subprocess
import sys

import pytest

from vdnnsim.planning.deadline import NEVER
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.linear_program import MOST_WHOLE, LinearProgram, standard_output_to_error

LIBC = ctypes.CDLL(None)


def test_what_c_prints_meanwhile_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """C keeps lines in a buffer where standard output is no terminal, and prints them when that is flushed."""
    LIBC.printf(b"before ")
    with standard_output_to_error():
        LIBC.printf(b"of HiGHS")
    LIBC.printf(b"after")
    LIBC.fflush(None)
    assert capfd.readouterr() == ("before after", "of HiGHS")


def test_a_closed_standard_output_stays_closed() -> None:
    code = (
        "import os; os.close(1)\n"
        "from vdnnsim.planning.linear_program import standard_output_to_error as to_error\n"
        "with to_error(): pass\n"
        "try: os.fstat(1)\n"
        "except OSError: os.write(2, b'closed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b"closed"


def test_a_closed_standard_output_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "dup", closed)
    with standard_output_to_error():
        pass


def test_integers_of_a_large_program_are_not_decided_with_little_effort() -> None:
    """Of which one is at least a half, and costs as much as it is: 0.5, or 1 as an integer."""
    program = LinearProgram()
    columns = [program.column(1.0, 1.0, weight=1.0) for _ in range(MOST_WHOLE + 1)]
    program.row([(columns[0], -1.0)], -0.5)
    assert program.minimized(0.0, UNLIMITED).bound == pytest.approx(1.0)
    assert program.minimized(0.0, Effort.until(NEVER, 2e6, 1e6)).bound == pytest.approx(0.5)
