"""A full disk, a removed folder and signals during a command; nothing that was finished is lost."""

import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.command_line import vdnnsim
from vdnnsim.scenario.simulator import Simulator

SCENARIO: Final = """
schema_version: 1
workload: {network: tiny_linear, batch_size: 4}
hardware: titan_x_maxwell
policies: [base(p), vdnn_all(m)]
"""
STUDY: Final = """
schema_version: 1
scenario: s.yaml
axes: {workload.batch_size: [4, 5]}
"""
COMMANDS: Final = (
    ("run", "s.yaml", "--out", "out"),
    ("compare", "s.yaml", "--policies", "base,none", "--out", "out"),
    ("sweep", "study.yaml", "--workers", "1", "--out", "out"),
)
COMMAND = pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
_SMALL_BYTES: Final = 2048


def forget() -> None:
    """Compute points anew, as a new process would."""
    from vdnnsim.study import sweep as chunk

    chunk._runner.cache_clear()  # noqa: SLF001


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "study.yaml").write_text(STUDY)
    forget()
    return tmp_path


def results(folder: Path) -> Mapping[str, bytes]:
    """The files of a folder, without what a study keeps for itself."""
    found = folder.iterdir() if folder.exists() else ()
    return {path.name: path.read_bytes() for path in found if not path.name.startswith("study.")}


@contextmanager
def amid(event: Callable[[], object]) -> Iterator[None]:
    oracle, left = Simulator.oracle, [event]

    def then(simulator: Simulator) -> object:
        if left:
            left.pop()()
        return oracle(simulator)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "oracle", then)
        yield


@COMMAND
def test_a_full_disk_is_reported_and_leaves_earlier_results(folder: Path, words: tuple[str, ...]) -> None:
    """No file may exceed 2 KiB; results are of another batch, so that they differ."""
    vdnnsim(*words, folder=folder)
    before, limits = results(folder / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("s.yaml", "study.yaml"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("size: 4", "size: 6").replace("[4, 5]", "[6, 7]"))
    forget()
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL_BYTES, limits[1]))
    try:
        done = vdnnsim(*words, folder=folder, status=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("vdnnsim: out")
    assert results(folder / "out") == before
    forget()
    vdnnsim(*words, folder=folder)
    assert results(folder / "out").keys() == before.keys()


@COMMAND
def test_a_folder_removed_during_the_command_is_made_again(folder: Path, words: tuple[str, ...]) -> None:
    vdnnsim(*words, folder=folder)
    whole = results(folder / "out")
    shutil.rmtree(folder / "out")
    (folder / "out").mkdir()
    forget()
    with amid(lambda: shutil.rmtree(folder / "out")):
        done = vdnnsim(*words, folder=folder, status=None)
    assert done.returncode in (0, 1)
    assert done.stderr.count("\n") == 1
    vdnnsim(*words, folder=folder)
    assert results(folder / "out") == whole


@COMMAND
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_interrupt_it(folder: Path, words: tuple[str, ...], number: int) -> None:
    with amid(lambda: signal.raise_signal(number)):
        done = vdnnsim(*words, folder=folder, status=1)
    message = "vdnnsim: interrupted: kept 0 of 4 points" if words[0] == "sweep" else "\nAborted!\n"
    assert done.stderr.startswith(message)
    assert results(folder / "out") == {}


@pytest.mark.parametrize(
    "words",
    [*(each[:-1] for each in COMMANDS), ("machines", "s.yaml", "--out"), ("frontier", "s.yaml", "--out")],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_made_is_refused_before_computing(folder: Path, words: tuple[str, ...]) -> None:
    with amid(lambda: pytest.fail("computes")):
        done = vdnnsim(*words, "/proc/out", folder=folder, status=1)
    assert done.stdout == ""
    assert done.stderr.startswith("vdnnsim: /proc")
    assert done.stderr.endswith("No such file or directory\n")
