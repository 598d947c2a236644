"""The command line where its streams fail: full, closed, abandoned, interrupted, or unable to show a name."""

import errno
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.command_line import ROOT, SMALL, vdnnsim
from vdnnsim.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


class _Failing(StringIO):
    """Standard output that cannot be written to."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


WROTE = "wrote 9 files to reports/small/; read reports/small/report.md first\n"
FULL = "vdnnsim: standard output: cannot be written: no space left on device\n"
CLOSED = "vdnnsim: standard output is closed; results go there\n"


@pytest.mark.parametrize(
    ("stdout", "error"), [(_Failing(errno.ENOSPC), FULL), (None, CLOSED), (_Failing(errno.EPIPE), "")]
)
def test_results_that_cannot_be_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stdout: StringIO | None, error: str
) -> None:
    """One line and exit 1; no line where the reader has gone, as `head` does. The files are written all the same."""
    monkeypatch.chdir(folder)
    for arguments, talk in ((["run", "small.yaml"], WROTE), (["check", "small.yaml"], ""), (["list", "policies"], "")):
        stderr = StringIO()
        monkeypatch.setattr(sys, "argv", ["vdnnsim", *arguments])
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 1
        assert stderr.getvalue() == talk + error
    assert (folder / "reports" / "small" / "results.csv").is_file()


def test_help_that_cannot_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["vdnnsim", "--help"])
    stderr = StringIO()
    with (
        chdir(tmp_path),
        redirect_stdout(_Failing(errno.ENOSPC)),
        redirect_stderr(stderr),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert end.value.code == 1
    assert stderr.getvalue() == "vdnnsim: [Errno 28] No space left on device\n"


def process(folder: Path, *arguments: bytes | str, path: str = str(ROOT), **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from vdnnsim.cli import main; main()", *arguments]
    environment |= {"PYTHONPATH": path, "PATH": ""}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True)
    return (done.returncode, done.stdout.decode("ascii", "strict"), done.stderr.decode("ascii", "strict"))


def test_an_interrupt_during_imports(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    done = process(tmp_path, "--help", path=f"{tmp_path}:{ROOT}")
    assert done == (1, "", "Aborted!\n")


def test_an_interrupt_outside_of_click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vdnnsim.cli.cli", interrupted)
    monkeypatch.setattr(sys, "argv", ["vdnnsim"])
    with chdir(tmp_path), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == "Aborted!"


def test_signs_are_spelled_in_ascii(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "small.yaml").write_text(SMALL)
    status, table, _ = process(tmp_path, "machines", "small.yaml", "--hardware", "titan_x_maxwell", **ascii_only)
    assert status == 0
    assert " +-15 %" in table
    assert "\\x" not in table
    assert not any(line.endswith(" ") for line in table.splitlines())


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (b"bad\xff.yaml", "bad\\udcff"),
        ("\u00fcn\u00ef.yaml".encode(), "\\udcc3\\udcbcn\\udcc3\\udcaf"),
        (b"two\nlines.yaml", "two\\nlines"),
    ],
)
def test_a_name_that_cannot_be_printed_is_shown_with_escapes(tmp_path: Path, file: bytes, shown: str) -> None:
    r"""In ASCII the bytes of two letters in UTF-8, and in any encoding \xff and a line end."""
    (tmp_path / os.fsdecode(file)).write_text(SMALL)
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    status, line, _ = process(tmp_path, "check", file, **ascii_only)
    assert status == 0
    assert line.startswith(f"'{shown}.yaml': a scenario: ")


def test_files_are_named_after_what_cannot_be_printed(tmp_path: Path) -> None:
    file = b"two\nlines\xff.yaml"
    (tmp_path / os.fsdecode(file)).write_text(SMALL)
    status, _, talk = process(tmp_path, "run", file, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert status == 0
    (folder,) = (tmp_path / "reports").iterdir()
    assert folder.name == "two\\nlines\\udcff"
    assert f"reports/{folder.name}/report.md" in talk


def test_what_is_piped_keeps_to_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 characters a line without it; a list of policies is wider than 60."""
    for columns, least, most in (("", 61, 120), ("60", 1, 60), ("none", 61, 120)):
        monkeypatch.setenv("COLUMNS", columns)
        widest = max(map(len, vdnnsim("list", "policies", folder=tmp_path).stdout.splitlines()))
        assert least <= widest <= most
