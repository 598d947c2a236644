import pickle
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded_traces import write
from tests.refusals import refusal
from vdnnsim.errors import RecordingError
from vdnnsim.recordings.recording_file import RecordingKind, kind_of, read_plain_pickle, read_recording

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


@settings(max_examples=100)
@given(value=VALUES, protocol=st.integers(2, 5))
def test_plain_data_is_read_as_python_reads_it(value: object, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol), "x.pickle") == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_more_than_256_references_and_lists_in_parts_of_1000_are_read(protocol: int) -> None:
    frames = [{"name": f"f{number}"} for number in range(400)]
    value = {"first": frames, "second": [*frames, *range(-2000, 70_000, 500)]}
    read = read_plain_pickle(pickle.dumps(value, protocol), "x.pickle")
    assert read == value
    assert isinstance(read, dict)
    assert read["first"][399] is read["second"][399]


class Touch(NamedTuple):
    """Creates a file when Python unpickles it."""

    path: Path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("deep", [False, True])
def test_a_pickle_that_imports_is_refused_and_nothing_runs(
    tmp_path: Path,
    deep: bool,  # noqa: FBT001  # given by pytest
    protocol: int,
) -> None:
    """Python creates the file, as is shown last."""
    path = tmp_path / "created"
    data = pickle.dumps({"segments": [Touch(path)], "device_traces": []} if deep else Touch(path), protocol)
    with pytest.raises(RecordingError, match=r"^x\.pickle: wants to run code \(imports .*nothing of it was executed$"):
        read_plain_pickle(data, "x.pickle")
    assert not path.exists()
    pickle.loads(data)  # noqa: S301  # our own
    assert path.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04cposix\nsystem\n.", "wants to run code (imports 'posix.system')"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "wants to run code (imports 'posix.system')"),
        (b"\x80\x02\x82\x01.", "holds operation 0x82"),
        (b"\x80\x02(iposix\nsystem\n.", "holds operation 0x69"),
        (b"\x80\x02)R.", "holds operation 0x52"),
        (b"\x80\x02Pname\n.", "holds operation 0x50"),
        (b"\x80\x02p4000000000\n.", "holds operation 0x70"),
        (b"\x80\x09.", "is damaged (unsupported pickle protocol: 9)"),
        (b"\x80\x04" + b"(" * 65, "is nested deeper than 64 levels"),
        (b"\x80\x04}(K\x01K\x02u.", "has keys that are not text"),
        (b"\x80\x04}K\x01K\x02s.", "has keys that are not text"),
        (b"\x80\x04](\x8c\x01aK\x02u.", "is damaged"),
        (b"\x80\x04}(X\x01\x00\x00\x00au.", "is damaged"),
        (b"\x80\x04](h\x05e.", "is truncated or damaged"),
        (b"\x80\x04K\x01K\x02a.", "is damaged"),
        (b"\x80\x04\x8c\x01\xff.", "is damaged"),
        (b"\x80\x04.", "is truncated or damaged"),
        (b"\x80\x04e.", "is truncated or damaged"),
        (b"\x80\x04X\xff\xff\xff\xff", "is truncated or damaged"),
        (b"\x80\x04\x85.", "is truncated or damaged"),
    ],
)
def test_pickles_of_anything_but_plain_data_are_refused_in_one_line(data: bytes, message: str) -> None:
    assert refusal(RecordingError, read_plain_pickle, data, "x.pickle").startswith(f"x.pickle: {message}")


def test_pickles_that_are_cut_off_or_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's unpickler in C makes a table of 64 GB of it (LONG_BINPUT)."""
    assert read_plain_pickle(b"\x80\x02]r\xf0\xff\xff\xff.", "x.pickle") == []
    # A pickle that was cut off anywhere is refused.
    data = pickle.dumps({"segments": [{"address": 2**40, "blocks": []}], "device_traces": [[{"action": "alloc"}]]})
    for length in range(2, len(data)):
        with pytest.raises(RecordingError):
            read_plain_pickle(data[:length], "x.pickle")
    # More lists than a snapshot has are refused.
    monkeypatch.setattr("vdnnsim.recordings.recording_file._MOST_CONTAINERS", 1000)
    with pytest.raises(RecordingError, match="holds more than 1000 lists and dictionaries"):
        read_plain_pickle(b"\x80\x04" + b"]" * 2000, "x.pickle")


@settings(max_examples=200)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_plain_data_or_refused(data: bytes) -> None:
    with suppress(RecordingError):
        read_plain_pickle(b"\x80\x04" + data, "x.pickle")


def test_the_kind_of_a_file_follows_from_its_content(tmp_path: Path) -> None:
    """A pickle begins with 0x80, JSON with a bracket, whatever the name and whether or not gzip packed it."""
    path = tmp_path / "file"
    for content, kind in ((b"\x80\x04.", RecordingKind.SNAPSHOT), (b" \n{}", RecordingKind.TRACE)):
        path.write_bytes(content)
        assert kind_of(path) is kind
    assert kind_of(write({}, tmp_path / "packed.gz")) is RecordingKind.TRACE
    for content, message in ((b"", "is empty"), (b"hello", "is neither JSON nor a pickle")):
        path.write_bytes(content)
        with pytest.raises(RecordingError, match=message):
            kind_of(path)
    # No more is unpacked than the limit.
    path = write("x" * 3 * 2**20, tmp_path / "large.gz")
    with pytest.raises(RecordingError, match="holds more than 2 MiB"):
        read_recording(path, 2 * 2**20)
