"""The table of copies of a profile: its curves, its errors, writing it."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hardware.toy_profile import TOY, refusal
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.copies import CopyRow, Direction, HostMemory, copy_table_text, read_copies
from vdnnsim.hardware.profile import load_profile, read_profile
from vdnnsim.hardware.write import copies_beside, write_profile

HEADER = "direction,host_memory,beside,copied_bytes,time_s,spread_fraction,timed_runs,note\n"
TABLE = HEADER + (
    "h2d,pinned,,4096,1.5e-05,0.01,20,\n"
    "h2d,pinned,,16384,9e-05,0.4,20,spreads too much to be used\n"
    "h2d,pinned,,65536,3e-05,0.02,20,\n"
    "h2d,pageable,,65536,0.001,0.02,20,\n"
    "d2h,pinned,,4096,2e-05,0.0,1,\n"
    "d2h,pinned,a matrix product,65536,7e-05,0.02,20,\n"
)
NAME = "toy.copies.csv"


def write(folder: Path, section: object = None, table: str = TABLE) -> Path:
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(TOY | {"copies": section or {"table": NAME}}), encoding="utf-8")
    (folder / NAME).write_text(table, encoding="utf-8")
    return path


def test_curves_are_made_of_steady_pinned_copies_that_ran_alone(tmp_path: Path) -> None:
    """Of H2D two sizes are left: one is wild and one pageable. Of D2H one is, which is no curve."""
    profile = load_profile(write(tmp_path))
    copies, sha256 = profile.server.link.copies, hashlib.sha256(TABLE.encode()).hexdigest()
    assert copies is not None
    assert copies.curves == {Direction.H2D: ((4096, 1.5e-05), (65536, 3e-05)), Direction.D2H: ()}
    assert (copies.table, copies.sha256) == (tmp_path / NAME, sha256)
    assert profile.sources[1:] == ((str(tmp_path / NAME), sha256),)
    # The path of a table is not part of the machine.
    (tmp_path / "elsewhere").mkdir()
    here, there = read_profile(write(tmp_path)), read_profile(write(tmp_path / "elsewhere"))
    assert repr(here.link) == repr(there.link)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ([1], "copies: found a list"),
        ({"tables": NAME}, "copies: 'tables' is not a key"),
        ({"table": f"../{NAME}"}, "copies.table: found '../toy.copies.csv'"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, section: object, message: str) -> None:
    assert refusal(write(tmp_path, section)).startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TABLE, "", "line 1: found the columns ''"),
        (TABLE, HEADER, "line 1: found no row"),
        ("copied_bytes", "bytes", "line 1: 'bytes' is not a column"),
        (",20,\n", ",20\n", "line 2: found 7 cells, expected 8"),
        ("h2d,pinned", "up,pinned", "line 2: direction: 'up' is not known"),
        ("pinned", "pined", "line 2: host_memory: 'pined' is not known"),
        (",4096,", ",0,", "line 2: copied_bytes: found '0'"),
        ("1.5e-05", "1e999", "line 2: time_s: found '1e999'"),
        ("1.5e-05", "0.0", "line 2: time_s: found '0.0'"),
        ("0.01", "", "line 2: spread_fraction: found ''"),
        (",20,", ",many,", "line 2: timed_runs: found 'many'"),
        ("16384", "4096", "line 3: copied_bytes: 4096"),
        ("a matrix", "a\tmatrix", "line 7: beside: found 'a\\tmatrix product'"),
        ("spreads too", "\x07 too", "line 3: note: found '\\x07 too much to be used'"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, table=TABLE.replace(old, new, 1))
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{tmp_path / NAME}: {message}")
    assert "\n" not in str(caught.value)


def test_a_written_profile_has_its_table_beside_it_and_reads_back_equal(tmp_path: Path) -> None:
    server = read_profile(write(tmp_path))
    (tmp_path / "new").mkdir()
    path = tmp_path / "new" / "toy.yaml"
    copies = copies_beside(path, TABLE)
    moved = replace(server, link=replace(server.link, copies=copies))

    assert write_profile(path, moved, "a toy", copies=TABLE) == (path.with_name(NAME), path)
    assert path.with_name(NAME).read_text(encoding="utf-8") == TABLE
    assert '\ncopies: {table: "toy.copies.csv"}\n' in path.read_text(encoding="utf-8")
    assert read_profile(path) == moved


seconds = st.floats(1e-9, 1e3)
texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=20)


@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(Direction), st.sampled_from(HostMemory), texts, st.integers(1, 2**40)),
        min_size=1,
        unique=True,
    ),
    data=st.data(),
)
def test_written_copies_are_read_back(kinds: list[tuple[Direction, HostMemory, str, int]], data: st.DataObject) -> None:
    """The curve of a direction is what its steady pinned rows alone say, by size; two at least."""
    rows = [CopyRow(*kind, data.draw(seconds), data.draw(st.floats(0, 9)), 7, data.draw(texts)) for kind in kinds]

    copies = read_copies(Path("toy.csv"), copy_table_text(rows).encode())

    for direction in Direction:
        points = sorted(
            (row.nbytes, row.seconds)
            for row in rows
            if (row.direction, row.host_memory, row.beside, row.note) == (direction, HostMemory.PINNED, "", "")
        )
        assert copies.curves[direction] == (tuple(points) if len(points) > 1 else ())
