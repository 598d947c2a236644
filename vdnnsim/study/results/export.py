"""The finished points of a study as CSV, which is the same bytes whoever computed them, or as Parquet."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Value
from vdnnsim.errors import StudyError
from vdnnsim.files.atomic import replace_file
from vdnnsim.report.result_table import csv_text
from vdnnsim.study.results.rows import batches, study_rows, table_header, table_row
from vdnnsim.study.results.store import Store
from vdnnsim.study.study import Study

_AT_ONCE: Final = 1000


def results_csv(study: Study, store: Store) -> Iterator[bytes]:
    """Yield the finished points as CSV in pieces, few of them in memory at a time."""
    header = table_header(study)
    yield csv_text(header, []).encode()
    for rows in _rows(study, store):
        yield csv_text(header, rows).partition("\n")[2].encode()


def write_parquet(path: Path, study: Study, store: Store) -> None:
    """Write the finished points to a Parquet file, with the columns of the CSV; a cell that is empty there is null.

    Raises:
        StudyError: pyarrow is not installed.
        OutputError: it cannot be written.
    """
    check_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    header = table_header(study)
    rows = [row for some in _rows(study, store) for row in some]
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    arrays = [pa.array([None if cell == "" else cell for cell in column]) for column in columns]
    written = pa.BufferOutputStream()
    parquet.write_table(pa.table(arrays, names=list(header)), written)
    replace_file(path, written.getvalue().to_pybytes())


def check_parquet() -> None:
    """Refuse to promise Parquet without pyarrow.

    Raises:
        StudyError: it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise StudyError(
            "--parquet: pyarrow is not installed; `pip install 'vdnnsim[notebook]'` brings it, or use results.csv, "
            "which holds the same"
        )


def _rows(study: Study, store: Store) -> Iterator[Sequence[tuple[Value, ...]]]:
    finished = (row for row in study_rows(study, store) if row.outcome is not None)
    return batches((table_row(study, row) for row in finished), _AT_ONCE)
