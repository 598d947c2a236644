import os
import sys
from pathlib import Path

import pytest

from calibration.pretend.environment import package_folders
from vdnnsim.errors import InputError


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def other_python(folder: Path) -> Path:
    """A Python of another environment, in whose path stands a folder that this one's lacks."""
    folder.mkdir()
    path = folder / "python3"
    script(path, f'#!/bin/sh\nPYTHONPATH={folder}/packages exec {sys.executable} "$@"\n')
    return path


def test_a_python_is_asked_where_it_finds_packages(tmp_path: Path) -> None:
    python = other_python(tmp_path / "bin")
    assert f"{tmp_path}/bin/packages" in package_folders(str(python))


def test_of_a_script_the_python_of_its_first_line_is_asked(tmp_path: Path) -> None:
    python = other_python(tmp_path / "bin")
    torchrun = script(tmp_path / "torchrun", f"#!{python}\nimport torch\n")
    assert f"{tmp_path}/bin/packages" in package_folders(torchrun)


def test_of_a_script_that_names_env_the_python_on_the_path_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = other_python(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    assert f"{tmp_path}/bin/packages" in package_folders(script(tmp_path / "tool", "#!/usr/bin/env python3\n"))


def test_another_program_uses_this_python(tmp_path: Path) -> None:
    assert package_folders(script(tmp_path / "job", "#!/bin/sh\npython train.py\n")) == sys.path


def test_missing_program_is_refused() -> None:
    with pytest.raises(InputError, match=r"no_such: there is no such program; a command begins with one"):
        package_folders("no_such")


def test_a_python_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    broken = script(tmp_path / "python", "#!/bin/sh\nexit 3\n")
    with pytest.raises(InputError, match="does not say where it finds packages"):
        package_folders(broken)
