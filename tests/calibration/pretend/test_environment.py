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
    """A Python of another environment, with a folder on its path that this one's lacks."""
    folder.mkdir()
    path = folder / "python3"
    script(path, f'#!/bin/sh\nPYTHONPATH={folder}/packages exec {sys.executable} "$@"\n')
    return path


@pytest.mark.parametrize("first_line", ["", "#!{python}", "#!/usr/bin/env python3"])
def test_packages_are_those_of_a_python_or_of_the_one_that_a_script_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_line: str
) -> None:
    python = other_python(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    tool = script(tmp_path / "torchrun", f"{first_line.format(python=python)}\nimport torch\n")
    assert f"{tmp_path}/bin/packages" in package_folders(tool if first_line else str(python))


def test_other_programs_use_this_python_or_are_refused(tmp_path: Path) -> None:
    assert package_folders(script(tmp_path / "job", "#!/bin/sh\npython train.py\n")) == sys.path
    # Missing program is refused.
    with pytest.raises(InputError, match="no_such: there is no such program"):
        package_folders("no_such")
    # A python that fails is refused.
    broken = script(tmp_path / "python", "#!/bin/sh\nexit 3\n")
    with pytest.raises(InputError, match="does not say where it finds packages"):
        package_folders(broken)
