import os
from pathlib import Path

import pytest

from calibration.measure.journal import Journal
from calibration.measure.statistics import Sample
from vdnnsim.errors import OutputError

WITH = {"device": "Fake", "torch": "2.11.0"}
SAMPLE = Sample(1.5, 0.0625, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "new" / "fake.partial.jsonl"
    with Journal(path, WITH) as journal:
        journal.keep("first", SAMPLE)
        journal.keep("second", (SAMPLE, SAMPLE))
    return path


def assert_both(path: Path) -> None:
    with Journal(path, WITH) as journal:
        assert (len(journal), journal.begun_anew) == (2, None)
        assert journal.recall("first", Sample) == SAMPLE
        assert journal.recall("second", tuple[Sample, ...]) == (SAMPLE, SAMPLE)
        assert journal.recall("third", Sample) is None


def replace_line(path: Path, line: int, content: bytes) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[line] = content
    path.write_bytes(b"\n".join(lines))


def test_each_measurement_is_on_the_disk_at_once_and_recalled(path: Path) -> None:
    assert len(path.read_bytes().splitlines()) == 3
    assert_both(path)
    # One process measures into it at a time.
    with Journal(path, WITH), pytest.raises(OutputError, match="another process"):
        Journal(path, WITH)
    assert_both(path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"key":', b'{"key":7,"value":1}', b'"\xff"', b'{"key":"first","value":"no sample"}'),
        b'{"key":"x","value":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_a_damaged_line_is_measured_again_and_costs_no_other(path: Path, content: bytes) -> None:
    """Blank, cut off, of another kind, not UTF-8, no sample, 2,000 deep."""
    replace_line(path, 1, content)
    with Journal(path, WITH) as journal:
        assert (journal.begun_anew, journal.recall("first", Sample)) == (None, None)
        journal.keep("first", SAMPLE)
    if b'"x"' not in content:
        assert_both(path)


def test_a_file_cut_off_anywhere_loses_the_cut_measurement_alone(path: Path) -> None:
    """Whatever byte a crash ends it at: all whole lines are known, and the next measurement follows on a new line."""
    whole = path.read_bytes()
    ends = [position + 1 for position, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with Journal(path, WITH) as journal:
            assert journal.begun_anew is None
            assert len(journal) == max(0, sum(end <= length for end in ends) - 1)
            journal.keep("next", SAMPLE)
            count = len(journal)
        with Journal(path, WITH) as journal:
            assert len(journal) == count
            assert journal.recall("next", Sample) == SAMPLE


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (WITH | {"torch": "2.13.0"}, "torch was 2.11.0 and is 2.13.0"),
        (WITH | {"driver": "580"}, "driver was unknown and is 580"),
        ({"device": "Fake"}, "torch was 2.11.0 and is unknown"),
    ],
)
def test_other_settings_begin_anew_and_say_why(path: Path, identity: dict[str, str], reason: str) -> None:
    with Journal(path, identity) as journal:
        assert (len(journal), journal.begun_anew) == (0, reason)
        journal.keep("first", SAMPLE)
    with Journal(path, identity) as journal:
        assert (len(journal), journal.begun_anew) == (1, None)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b'{"format":2,"identity":{}}', "another version of vdnnsim"),
        *((content, "is damaged") for content in (b"{}", b"\xff", b'{"format":1,"identity":' + b"[" * 2000)),
    ],
)
def test_a_header_that_cannot_be_read_begins_anew(path: Path, header: bytes, reason: str) -> None:
    replace_line(path, 0, header)
    with Journal(path, WITH) as journal:
        assert len(journal) == 0
        assert journal.begun_anew is not None
        assert journal.begun_anew.endswith(reason)


def test_file_that_is_no_journal_is_left_alone(path: Path) -> None:
    path.rename(path.parent / "note.txt")
    before = (path.parent / "note.txt").read_bytes()
    path.symlink_to("note.txt")
    with pytest.raises(OutputError, match="too many levels of symbolic links"):
        Journal(path, WITH)
    assert (path.parent / "note.txt").read_bytes() == before
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OutputError, match="is not a regular file"):
        Journal(path, WITH)
    path.unlink()
    path.mkdir()
    with pytest.raises(OutputError, match=r"fake\.partial\.jsonl: cannot be written: is a directory"):
        Journal(path, WITH)


def test_full_disk_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, though what could not be written is still there when the file is closed."""
    with Journal(path, WITH) as journal:
        pass
    monkeypatch.setattr(journal, "_file", Path("/dev/full").open("ab"))  # noqa: SIM115  # the journal closes it
    with pytest.raises(OutputError, match="no space left on device"), journal:
        journal.keep("third", SAMPLE)
