"""Pickles of plain data are read as Python reads them; whatever else is in one is named, and never done."""

import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdnnsim.errors import RecordingError
from vdnnsim.recordings.plain_pickle import read_plain_pickle

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
def test_what_stands_twice_is_read_once_and_much_is_read_too(protocol: int) -> None:
    """More than 256 things are remembered, so that they are referred to in both ways; lists go in parts of 1000."""
    frames = [{"name": f"f{number}"} for number in range(400)]
    value = {"first": frames, "second": [*frames, *range(-2000, 70_000, 500)]}

    read = read_plain_pickle(pickle.dumps(value, protocol), "x.pickle")

    assert read == value
    assert isinstance(read, dict)
    assert read["first"][399] is read["second"][399]


class Evil:
    """Writes a file when it is unpickled by Python."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("deep", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_runs(
    tmp_path: Path,
    deep: bool,  # noqa: FBT001  # given by pytest
    protocol: int,
) -> None:
    """Python would have created the file, as it does here to show that it would."""
    path = tmp_path / "created"
    evil: object = Evil(path)
    data = pickle.dumps({"segments": [evil], "device_traces": []} if deep else evil, protocol)

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
        (b"\x80\x02(iposix\nsystem\n.", "wants to run code (imports 'posix.system')"),
        (b"\x80\x02\x82\x01.", "wants to run code (imports)"),
        (b"\x80\x02)R.", "holds what no snapshot has (operation 0x52 of pickle)"),
        (b"\x80\x02Pname\n.", "holds what no snapshot has (operation 0x50 of pickle)"),
        (b"\x80\x09.", "is a pickle of protocol 9, expected 2 to 5"),
        (b"\x80\x04" + b"(" * 65, "is nested deeper than 64 levels"),
        (b"\x80\x04}(K\x01K\x02u.", "has keys that are not text"),
        (b"\x80\x04}(X\x01\x00\x00\x00au.", "is damaged"),
        (b"\x80\x04](h\x05e.", "is damaged"),
        (b"\x80\x04K\x01K\x02a.", "is damaged"),
        (b"\x80\x04\x8c\x01\xff.", "is damaged"),
        (b"\x80\x04.", "ends in the middle or is damaged"),
        (b"\x80\x04e.", "ends in the middle or is damaged"),
        (b"\x80\x04X\xff\xff\xff\xff", "ends in the middle or is damaged"),
        (b"\x80\x04\x85.", "ends in the middle or is damaged"),
    ],
)
def test_what_is_no_plain_data_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read_plain_pickle(data, "x.pickle")

    assert str(caught.value).startswith(f"x.pickle: {message}")
    assert "\n" not in str(caught.value)


def test_a_pickle_that_was_cut_off_anywhere_is_refused() -> None:
    data = pickle.dumps({"segments": [{"address": 2**40, "blocks": []}], "device_traces": [[{"action": "alloc"}]]})

    for length in range(2, len(data)):
        with pytest.raises(RecordingError):
            read_plain_pickle(data[:length], "x.pickle")


def test_lists_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would be a list."""
    monkeypatch.setattr("vdnnsim.recordings.plain_pickle._MOST_CONTAINERS", 1000)

    with pytest.raises(RecordingError, match="holds more than 1000 lists and dictionaries"):
        read_plain_pickle(b"\x80\x04" + b"]" * 2000, "x.pickle")


@settings(max_examples=200)
@given(data=st.binary(max_size=60))
def test_no_bytes_do_anything_else(data: bytes) -> None:
    """They are plain data or refused."""
    with suppress(RecordingError):
        read_plain_pickle(b"\x80\x04" + data, "x.pickle")
