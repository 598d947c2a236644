"""The version of the model under which results are kept."""

import pkgutil
import shutil
from pathlib import Path

import grimp
import pytest

import vdnnsim
from vdnnsim.study import version
from vdnnsim.study.version import NOT_COVERED, covered_digests, model_version, version_of

PACKAGE = Path(vdnnsim.__file__).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "vdnnsim"))


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ("engine/simulate.py", "engine"),
        ("dnn/networks/vgg.py", "dnn"),
        ("study/points/compute.py", "study.points"),
        ("units.py", "units"),
        ("study/store.py", None),
        ("report/markdown.py", None),
        ("cli/sweep.py", None),
    ],
)
def test_the_version_changes_with_covered_modules_alone(changed: str, part: str | None, package: Path) -> None:
    """And the digest of the one part that changed says which it was."""
    before = covered_digests(package)
    with (package / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    after = covered_digests(package)
    assert [name for name in before if after[name] != before[name]] == ([] if part is None else [part])
    assert version_of(before).startswith(f"{vdnnsim.__version__}+")
    assert (version_of(after) != version_of(before)) is (part is not None)


def test_the_version_is_of_contents_and_not_of_names(package: Path) -> None:
    before = covered_digests(package)
    (package / "engine" / "simulate.py").rename(package / "engine" / "another_name.py")
    assert covered_digests(package) == before
    assert version_of(before) == model_version()


def test_every_part_is_covered_or_named_as_not_covered() -> None:
    """Of `study` the package `points` alone."""
    parts = {each.name for each in pkgutil.iter_modules([str(PACKAGE)])} - {"study"}
    assert NOT_COVERED | covered_digests(PACKAGE).keys() == parts | {"study.points"}
    assert not NOT_COVERED & covered_digests(PACKAGE).keys()


def test_all_that_computing_a_point_imports_is_covered() -> None:
    """But for the version itself, which keys of points have in them."""
    graph = grimp.build_graph("vdnnsim")
    computing = {"vdnnsim.study.points.compute", "vdnnsim.study.points.resolve"}
    imported = computing.union(*(graph.find_upstream_modules(module) for module in computing))
    parts = [f"vdnnsim.{part}" for part in covered_digests(PACKAGE)]
    covered = {module for part in parts for module in (part, *graph.find_descendants(part))}
    assert imported - covered == {version.__name__}
    assert {"vdnnsim.engine.simulate", "vdnnsim.cost.model", "vdnnsim.plans.placement"} <= imported
