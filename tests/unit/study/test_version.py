"""The version of the model under which results are kept."""

import shutil
from pathlib import Path

import pytest

from vdnnsim import __version__
from vdnnsim.study import version

PACKAGE = Path(version.__file__).parents[1]


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("engine/simulate.py", True),
        ("study/compute.py", True),
        ("element_type.py", True),
        ("study/store.py", False),
        ("report/markdown.py", False),
        ("cli/sweep.py", False),
    ],
)
def test_it_changes_with_what_decides_a_result(
    changed: str,
    counts: bool,  # noqa: FBT001  # what is expected
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("engine/simulate.py", "study/compute.py", "study/store.py", "element_type.py", "report/markdown.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / name)
    (tmp_path / "cli").mkdir()
    monkeypatch.setattr(version, "__file__", str(tmp_path / "study" / "version.py"))
    before = version.model_version.__wrapped__()

    with (tmp_path / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")

    assert before.startswith(f"{__version__}+")
    assert (version.model_version.__wrapped__() != before) is counts
