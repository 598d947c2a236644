"""A machine whose nvidia-smi answers what a test wants."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Smi = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Put a program of that name first on PATH, which answers queries by their first argument and logs its calls."""

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
