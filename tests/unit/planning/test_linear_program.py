import ctypes
import os
import subprocess
import sys

import pytest

from vdnnsim.planning.linear_program import standard_output_to_error

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
