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
    """A journal with two measurements."""
    path = tmp_path / "new" / "fake.partial.jsonl"
    with Journal(path, WITH) as journal:
        journal.keep("first", SAMPLE)
        journal.keep("second", (SAMPLE, SAMPLE))
    return path


def test_what_was_kept_is_recalled(path: Path) -> None:
    with Journal(path, WITH) as journal:
        assert len(journal) == 2
        assert journal.begun_anew is None
        assert journal.recall("first", Sample) == SAMPLE
        assert journal.recall("second", tuple[Sample, ...]) == (SAMPLE, SAMPLE)
        assert journal.recall("third", Sample) is None


def test_what_can_be_no_such_value_is_measured_again(path: Path) -> None:
    """The line is sound JSON, but holds no sample; after the second measurement the file knows both."""
    text = path.read_text()
    path.write_text(text.replace('{"key":"first","value":', '{"key":"first","value":"lost","was":', 1))
    with Journal(path, WITH) as journal:
        assert journal.recall("first", Sample) is None
        journal.keep("first", SAMPLE)
    with Journal(path, WITH) as journal:
        assert journal.recall("first", Sample) == SAMPLE
        assert journal.recall("second", tuple[Sample, ...]) == (SAMPLE, SAMPLE)


def test_each_measurement_is_on_the_disk_at_once(path: Path) -> None:
    with Journal(path, WITH) as journal:
        journal.keep("third", SAMPLE)
        assert len(path.read_bytes().splitlines()) == 4


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
def test_under_other_settings_it_begins_anew_and_says_why(path: Path, identity: dict[str, str], reason: str) -> None:
    with Journal(path, identity) as journal:
        assert (len(journal), journal.begun_anew) == (0, reason)
        journal.keep("first", SAMPLE)
    with Journal(path, identity) as journal:
        assert (len(journal), journal.begun_anew) == (1, None)


@pytest.mark.parametrize(
    ("line", "content", "reason"),
    [
        (0, b'{"format":2,"identity":{}}', "was written by another version of vdnnsim"),
        (0, b"{}", "is damaged"),
        (0, b"\xff", "is damaged"),
        (0, b'{"format":1,"identity":' + b"[" * 2000, "is damaged"),
    ],
)
def test_what_it_cannot_read_it_does_not_use(path: Path, line: int, content: bytes, reason: str) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[line] = content
    path.write_bytes(b"\n".join(lines))

    with Journal(path, WITH) as journal:
        assert len(journal) == 0
        assert journal.begun_anew == f"{path} {reason}"


@pytest.mark.parametrize(
    "content",
    [b"", b'{"key":', b'{"key":7,"value":1}', b'"\xff"', b'{"key":"x","value":' + b"[" * 2000 + b"]" * 2000 + b"}"],
)
def test_a_line_that_is_damaged_costs_that_line(path: Path, content: bytes) -> None:
    """Blank, cut off, of another kind, not UTF-8, 2,000 deep: the first is measured again, and the second stays."""
    lines = path.read_bytes().split(b"\n")
    lines[1] = content
    path.write_bytes(b"\n".join(lines))

    with Journal(path, WITH) as journal:
        assert (journal.begun_anew, journal.recall("first", Sample)) == (None, None)
        assert journal.recall("second", tuple[Sample, ...]) == (SAMPLE, SAMPLE)
        journal.keep("first", SAMPLE)
    with Journal(path, WITH) as journal:
        assert journal.recall("first", Sample) == SAMPLE
        assert journal.recall("second", tuple[Sample, ...]) == (SAMPLE, SAMPLE)


def test_one_process_measures_into_it_at_a_time(path: Path) -> None:
    with Journal(path, WITH), pytest.raises(OutputError, match="another process measures into it, expected one at a"):
        Journal(path, WITH)
    with Journal(path, WITH) as journal:
        assert len(journal) == 2  # it is free again, and nothing is lost


def test_what_is_no_journal_is_left_as_it_is(path: Path) -> None:
    """A link to a note of somebody's, and a pipe to which nobody writes."""
    path.rename(path.parent / "note.txt")
    before = (path.parent / "note.txt").read_bytes()
    path.symlink_to("note.txt")
    with pytest.raises(OutputError, match="cannot be written: too many levels of symbolic links"):
        Journal(path, WITH)
    assert (path.parent / "note.txt").read_bytes() == before
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OutputError, match="is no regular file, expected a journal or nothing"):
        Journal(path, WITH)


def test_it_is_removed(path: Path) -> None:
    Journal(path, WITH).remove()

    assert list(path.parent.iterdir()) == []


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputError, match=r"file: cannot be written: file exists$"):
        Journal(tmp_path / "file" / "fake.jsonl", WITH)


def test_a_folder_that_takes_no_journal_is_told_and_not_the_journal() -> None:
    """Nobody asked for a file of this name; in /proc not even root can make one."""
    with pytest.raises(OutputError, match=r"^/proc: cannot be written: "):
        Journal(Path("/proc/fake.jsonl"), WITH)


def test_a_folder_of_the_name_of_the_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "fake.jsonl").mkdir()

    with pytest.raises(OutputError, match=r"fake\.jsonl: cannot be written: is a directory$"):
        Journal(tmp_path / "fake.jsonl", WITH)


def test_a_full_disk_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, though what could not be written is still there when the file is closed."""
    with Journal(path, WITH) as journal:
        pass
    monkeypatch.setattr(journal, "_file", Path("/dev/full").open("ab"))  # noqa: SIM115  # the journal closes it
    with pytest.raises(OutputError, match="cannot be written: no space left on device"), journal:
        journal.keep("third", SAMPLE)
