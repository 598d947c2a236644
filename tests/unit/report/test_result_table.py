from pathlib import Path

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.report.result_table import csv_text, write_csv


def test_cells_are_written_without_loss() -> None:
    """0.1 + 0.2 is 0.30000000000000004; a whole float keeps its point, an int has none; commas are quoted."""
    text = csv_text(("a", "b", "c", "d", "e"), [(True, 3, 3.0, 0.1 + 0.2, "x, y"), (False, 0, 1e-9, 1e22, 'say "no"')])
    assert text == 'a,b,c,d,e\ntrue,3,3.0,0.30000000000000004,"x, y"\nfalse,0,1e-09,1e+22,"say ""no"""\n'


def test_a_row_has_as_many_cells_as_the_header() -> None:
    with pytest.raises(ValueError, match="zip"):
        csv_text(("a", "b"), [(1,)])


def test_a_table_is_written_with_unix_line_ends(tmp_path: Path) -> None:
    write_csv(tmp_path / "new" / "table.csv", ("a",), [(1,), (2,)])
    assert (tmp_path / "new" / "table.csv").read_bytes() == b"a\n1\n2\n"


def test_a_table_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder, expected the name of a file"):
        write_csv(tmp_path, ("a",), [])
