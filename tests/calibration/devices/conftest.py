"""A CPU as a device, and a machine whose nvidia-smi answers what a test wants."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from calibration.devices.cpu import CpuDevice

Smi = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    device = CpuDevice()
    yield device
    device.close()


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Put a program of that name before all others: it answers queries by their first argument and fails at others.

    It returns the file where the program notes its arguments, a line for each call.
    """

    def install(answers: Mapping[str, str]) -> Path:
        calls = tmp_path / "calls"
        cases = "".join(
            f"  {shlex.quote(query)}) printf '%s\\n' {shlex.quote(text)};;\n" for query, text in answers.items()
        )
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\ncase "$1" in\n{cases}  *) exit 6;;\nesac\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return calls

    return install
