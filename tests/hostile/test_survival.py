"""What happens amid a command costs nothing that is finished: a full disk, a folder that goes, a signal.

Kills are tried by `python -m tests.hostile.kills 34`, those of clusters by `python -m tests.study.deaths 20 5`.
"""

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
    """This process computes points anew, as a new one would."""
    from vdnnsim.study import sweep as chunk

    chunk._runner.cache_clear()  # noqa: SLF001  # nothing but a new process forgets


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
def amid(happens: Callable[[], object]) -> Iterator[None]:
    """Let something happen while the command computes, once."""
    oracle, left = Simulator.oracle, [happens]

    def then(simulator: Simulator) -> object:
        if left:
            left.pop()()
        return oracle(simulator)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "oracle", then)
        yield


@COMMAND
def test_a_full_disk_is_one_line_and_costs_nothing_that_was_there(folder: Path, words: tuple[str, ...]) -> None:
    """No file may have more than 2 KiB, of results of another batch; where there is room again the command goes on."""
    assert vdnnsim(*words, folder=folder).returncode == 0
    before, limits = results(folder / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("s.yaml", "study.yaml"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("size: 4", "size: 6").replace("[4, 5]", "[6, 7]"))
    forget()
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALL_BYTES, limits[1]))
    try:
        done = vdnnsim(*words, folder=folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("vdnnsim: out")
    assert results(folder / "out") == before
    forget()
    assert vdnnsim(*words, folder=folder).returncode == 0
    assert results(folder / "out").keys() == before.keys()


@COMMAND
def test_a_folder_that_is_removed_meanwhile_comes_again(folder: Path, words: tuple[str, ...]) -> None:
    """At once or, of a sweep that may say what is missing, by the same command."""
    assert vdnnsim(*words, folder=folder).returncode == 0
    whole = results(folder / "out")
    shutil.rmtree(folder / "out")
    (folder / "out").mkdir()
    forget()
    with amid(lambda: shutil.rmtree(folder / "out")):
        done = vdnnsim(*words, folder=folder)
    assert done.returncode in (0, 1)
    assert done.stderr.count("\n") == 1
    assert vdnnsim(*words, folder=folder).returncode == 0
    assert results(folder / "out") == whole


@COMMAND
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_asks_it_to_end_interrupts_it(folder: Path, words: tuple[str, ...], number: int) -> None:
    """Nothing is left beside what a study keeps, and the word is that of Ctrl-C."""
    with amid(lambda: signal.raise_signal(number)):
        done = vdnnsim(*words, folder=folder)
    told = "vdnnsim: interrupted: kept 0 of 4 points; the same command goes on\n"
    assert (done.returncode, done.stderr) == (1, told if words[0] == "sweep" else "\nAborted!\n")
    assert results(folder / "out") == {}


@pytest.mark.parametrize(
    "words",
    [
        *(each[:-1] for each in COMMANDS),
        ("machines", "s.yaml", "--out"),
        ("frontier", "s.yaml", "--out"),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_nobody_may_make_is_told_before_anything_is_computed(
    folder: Path, words: tuple[str, ...]
) -> None:
    """Not even root makes one in /proc."""
    with amid(lambda: pytest.fail("computes")):
        done = vdnnsim(*words, "/proc/out", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("vdnnsim: /proc")
    assert done.stderr.endswith("No such file or directory\n")
