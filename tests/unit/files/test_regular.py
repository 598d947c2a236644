"""Regular files are read up to a limit; all else is refused at once."""

import os
from pathlib import Path

import pytest

from tests.refusals import refusal as refused_with
from vdnnsim.errors import ProfileError, is_fault
from vdnnsim.files.regular import UnreadableError, read_regular_file


def refusal(path: Path, largest_bytes: int = 2**20) -> str:
    return refused_with(UnreadableError, read_regular_file, path, largest_bytes, "expected text")


def test_regular_files_are_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link", 4, "") == b"1234"
    # Of a sparse file of 3 GB, and of one byte too many.
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 * 10**9)
    assert refusal(tmp_path / "sparse", 64 * 2**20) == "is larger than 64 MiB, expected text"
    assert refusal(tmp_path / "sparse", 2**18) == "is larger than 256 KiB, expected text"
    # A pipe without a writer, a device without an end.
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, found in (("pipe", "not a regular file"), ("endless", "not a regular file"), (".", "a folder")):
        assert refusal(tmp_path / name) == f"is {found}, expected text"


def test_failures_of_the_system_are_faults_and_wrong_files_are_not(tmp_path: Path) -> None:
    for name, fault in (("missing", True), (".", False), ("a\0b", False)):
        with pytest.raises(UnreadableError) as refused:
            read_regular_file(tmp_path / name, 1, "")
        assert is_fault(refused.value) is fault
    caused = ProfileError("cannot be read")
    caused.__cause__ = OSError()
    assert is_fault(caused)
    assert is_fault(MemoryError())
    assert not is_fault(ProfileError("wrong"))
