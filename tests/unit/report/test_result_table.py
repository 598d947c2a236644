from pathlib import Path

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.report.result_table import csv_text, write_csv


def test_tables_are_written_without_loss_and_refused_where_they_cannot_be(tmp_path: Path) -> None:
    """0.1 + 0.2 is 0.30000000000000004; a whole float keeps its point, an int has none; commas are quoted."""
    text = csv_text(("a", "b", "c", "d", "e"), [(True, 3, 3.0, 0.1 + 0.2, "x, y"), (False, 0, 1e-9, 1e22, 'say "no"')])
    assert text == 'a,b,c,d,e\ntrue,3,3.0,0.30000000000000004,"x, y"\nfalse,0,1e-09,1e+22,"say ""no"""\n'
    # A row has as many cells as the header.
    with pytest.raises(ValueError, match="zip"):
        csv_text(("a", "b"), [(1,)])
    # A table is written with unix line ends.
    write_csv(tmp_path / "new" / "table.csv", ("a",), [(1,), (2,)])
    assert (tmp_path / "new" / "table.csv").read_bytes() == b"a\n1\n2\n"
    # A table is not written over a folder.
    with pytest.raises(OutputError, match="is a folder, expected the name of a file"):
        write_csv(tmp_path, ("a",), [])
