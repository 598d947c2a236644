"""Studies from Python, and their results."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vdnnsim.report.result_table import ResultTable, Shown

if TYPE_CHECKING:
    from vdnnsim.report.picture import Picture
    from vdnnsim.study.study import Study


@dataclass(frozen=True, slots=True, repr=False)
class StudyResults(ResultTable):
    """The points of a study; prints how many are done, failed and missing.

    Attributes:
        pictures: those that the study's file asks for.
    """

    pictures: "tuple[Picture, ...]"


@dataclass(frozen=True, slots=True, repr=False)
class LoadedStudy(Shown):
    """A scenario with axes over its values, from a file."""

    study: "Study"

    def __str__(self) -> str:
        from vdnnsim.report.document import plain_table, titled_table
        from vdnnsim.report.findings import caption

        axes = self.study.axes
        ends = ((each, each.values[0], each.values[-1]) for each in axes)
        cells = [(each.key, str(len(each.values)), each.text(first), each.text(last)) for each, first, last in ends]
        header = ("axis", "values", "first", "last")
        table = plain_table(header, cells)
        points = f"{self.study.name}: {self.study.grid_size} points of {caption(self.study.base)}"
        return str(ResultTable(header, cells, titled_table(points, table, (), ())))

    def run(self, folder: str | Path | None = None, workers: int = 1) -> StudyResults:
        """Compute and store missing points of the grid, as `vdnnsim sweep`.

        Args:
            folder: of the results; `reports/<study>` by default.
            workers: number of processes.

        Returns:
            a row for each finished point, with the columns of `results.csv` in SI units.

        Raises:
            StudyError: points cannot be stored, or a picture cannot be drawn.
            OutputError: the folder cannot be written, or has other files.
        """
        from vdnnsim.report.picture import Picture
        from vdnnsim.study.fastest import sweep_page
        from vdnnsim.study.folder import write_report
        from vdnnsim.study.results import progress_of, results_table
        from vdnnsim.study.store import writing
        from vdnnsim.study.sweep import local_workers, sweep

        place = Path("reports") / self.study.name if folder is None else Path(folder)
        with writing(place) as store:
            sweep(self.study, store, local_workers(workers))
            write_report(self.study, store, place)
            progress = progress_of(self.study, store)
            page = sweep_page(self.study, store, progress, "to_pandas() has all")
            table = results_table(self.study, store, page)
        drawn = ((each, (place / f"{each.name}.png").read_bytes()) for each in self.study.pictures)
        pictures = tuple(Picture(f"{each.name}.png", each.title, content) for each, content in drawn)
        return StudyResults(table.columns, table.cells, table.shown, pictures)
