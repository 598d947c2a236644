"""Length and names of modules, and no machine's paths in tracked files."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for package in ("vdnnsim", "calibration", "reports") for path in (ROOT / package).rglob("*.py"))
LINE_LIMIT = 300
CATCH_ALL_NAMES = frozenset({"common", "helpers", "misc", "util", "utils"})
# A path that exists on one machine only, as the home of a user.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:home|root|Users|work|tmp)/\S*")


def tracked_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("what is tracked is known only in a git checkout")
    names = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # A file that is deleted but not yet committed is still listed.
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_named_for_what_it_holds(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < LINE_LIMIT
    assert path.stem not in CATCH_ALL_NAMES
    assert path.parent.name not in CATCH_ALL_NAMES


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content:  # a picture
            continue
        lines = content.decode("utf-8").splitlines()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match.group()}"
            for number, line in enumerate(lines, start=1)
            for match in MACHINE_PATH.finditer(line)
        ]
    assert found == []


def test_a_path_of_one_machine_is_recognized() -> None:
    # The first folder is inserted here, as this file is searched too.
    texts = ("see /{}/ada/run", "open('/{}/x')", "/{}/.cache", "path: /{}/a")
    assert all(MACHINE_PATH.search(text.format(folder)) for text in texts for folder in ("home", "root", "tmp"))
    others = ("tests/work/a", "https://example.org/home/page", "$HOME/tmp/x", "home/tmp")
    assert not any(map(MACHINE_PATH.search, others))
