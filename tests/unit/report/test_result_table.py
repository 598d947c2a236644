"""Tables of results as CSV, and what a notebook stores of them and of a search; IPython is a stand-in."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.report.document import Document, Prose
from vdnnsim.report.progress import SearchLine
from vdnnsim.report.result_table import ResultTable, csv_text, write_csv


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


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a notebook displays, also in place of what it displayed before."""
    found: list[str] = []

    def display(content: dict[str, str], **_: bool) -> Any:  # noqa: ANN401
        found.append(content["text/plain"])
        return SimpleNamespace(update=display)

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda _, text: found.append(text))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return found


def test_a_notebook_stores_a_table_once_and_nothing_of_a_search(displayed: list[str]) -> None:
    """The cell shows what it returns; the line of a search is empty at last."""
    table = ResultTable(("a",), ((1,),), Document((Prose("one"),)))
    assert "one" in repr(table)
    assert "one" in table._repr_html_()
    assert not displayed
    with SearchLine() as line:
        line.show("a plan")
        line.show("another")
    assert displayed == ["a plan", "another", ""]
