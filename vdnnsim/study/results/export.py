"""Writes the finished points of a study as CSV, which is the same bytes whoever computed them, or as Parquet."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Value
from vdnnsim.errors import OutputError, StudyError
from vdnnsim.report.csv_file import csv_text
from vdnnsim.study.results.rows import batches, study_rows, table_header, table_row
from vdnnsim.study.results.store import Store
from vdnnsim.study.study import Study

_AT_ONCE: Final = 1000


def write_results(path: Path, study: Study, store: Store) -> None:
    """Write the finished points to a CSV file, whole or not at all, few of them in memory at a time.

    Raises:
        OutputError: it cannot be written.
    """
    header = table_header(study)
    try:
        beside = Path(tempfile.mkdtemp(prefix=".vdnnsim-", dir=path.absolute().parent))
        try:
            with (beside / path.name).open("w", encoding="utf-8", newline="") as file:
                file.write(csv_text(header, []))
                for rows in _rows(study, store):
                    file.write(csv_text(header, rows).partition("\n")[2])
            (beside / path.name).replace(path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as failure:
        raise OutputError(f"{path}: cannot be written: {failure.strerror or failure}") from None


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
    try:
        parquet.write_table(pa.table(arrays, names=list(header)), path)
    except OSError as failure:
        raise OutputError(f"{path}: cannot be written: {failure.strerror or failure}") from None


def check_parquet() -> None:
    """Refuse to promise Parquet without pyarrow.

    Raises:
        StudyError: it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise StudyError("--parquet: pyarrow is not installed; install it, or use results.csv, which holds the same")


def _rows(study: Study, store: Store) -> Iterator[Sequence[tuple[Value, ...]]]:
    finished = (row for row in study_rows(study, store) if row.outcome is not None)
    return batches((table_row(study, row) for row in finished), _AT_ONCE)
