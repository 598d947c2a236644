"""The raw times of copies as a CSV file beside the profile: what the lines of the link were fitted to."""

import csv
import io
from collections.abc import Iterator
from typing import Final

from calibration.measure.copies import HostMemory
from calibration.measure.link_times import LinkTimes
from calibration.measure.statistics import Sample

COLUMNS: Final = (
    "direction",
    "host_memory",
    "beside",
    "copied_bytes",
    "time_s",
    "spread_fraction",
    "timed_runs",
    "note",
)


def copy_table_text(times: LinkTimes) -> str:
    r"""Return all copies as CSV text, \n at line ends; `beside` is empty for a copy alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(times))
    return text.getvalue()


def _rows(times: LinkTimes) -> Iterator[tuple[str, ...]]:
    for copy in times.alone:
        yield (copy.direction.value, copy.host_memory.value, "", str(copy.nbytes), *_cells(copy.sample))
    for beside in times.beside:
        memory = HostMemory.PINNED.value
        yield (beside.direction.value, memory, beside.other, str(beside.nbytes), *_cells(beside.sample))


def _cells(sample: Sample) -> tuple[str, ...]:
    note = "spreads too much to be used" if sample.is_refused else ""
    return (repr(sample.median), repr(sample.spread), str(sample.count), note)
