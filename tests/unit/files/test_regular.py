"""Files of others are read up to a limit, and what is none is refused at once."""

import os
from pathlib import Path

import pytest

from vdnnsim.errors import ProfileError, is_fault
from vdnnsim.files.regular import UnreadableError, read_regular_file


def refusal(path: Path, largest_bytes: int = 2**20) -> str:
    """What is said of a file."""
    with pytest.raises(UnreadableError) as refused:
        read_regular_file(path, largest_bytes, "expected text")
    return str(refused.value)


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link", 4, "") == b"1234"


def test_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    """Of a sparse file of 3 GB, and of one byte too many."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 * 10**9)
    assert refusal(tmp_path / "sparse", 64 * 2**20) == "is larger than 64 MiB, expected text"
    assert refusal(tmp_path / "sparse", 2**18) == "is larger than 256 KiB, expected text"


def test_devices_pipes_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes to the pipe, and the device has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, found in (("pipe", "no regular file"), ("endless", "no regular file"), (".", "a folder")):
        assert refusal(tmp_path / name) == f"is {found}, expected text"


def test_what_the_system_refuses_is_a_fault_and_what_is_wrong_is_none(tmp_path: Path) -> None:
    """The one may pass, and the other stays."""
    for name, fault in (("missing", True), (".", False), ("a\0b", False)):
        with pytest.raises(UnreadableError) as refused:
            read_regular_file(tmp_path / name, 1, "")
        assert is_fault(refused.value) is fault
    told = ProfileError("cannot be read")
    told.__cause__ = OSError()
    assert is_fault(told)
    assert is_fault(MemoryError())
    assert not is_fault(ProfileError("wrong"))
